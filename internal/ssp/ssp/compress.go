package ssp

import (
	"bytes"
	"errors"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Coding is a content coding in which bodies are sent.
type Coding string

// The values of `compress.coding`. Another one means CodingNone.
const (
	CodingNone Coding = "none"
	CodingGzip Coding = "gzip"
	CodingZstd Coding = "zstd"
)

// Compress returns plain, compressed, also if that is not shorter. It is meant for single bodies.
func (c Coding) Compress(plain []byte) []byte {
	if c == CodingZstd {
		e := zstdEncoders.Get().(*zstd.Encoder)
		defer zstdEncoders.Put(e)
		return e.EncodeAll(plain, nil)
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(plain) //nolint:errcheck // a buffer takes all
	w.Close()
	return b.Bytes()
}

// Append appends plain to dst, compressed. If the result is not shorter than plain, it returns dst unchanged, and false.
func (c Coding) Append(dst, plain []byte) ([]byte, bool) {
	if c == CodingZstd {
		return appendZstd(dst, plain)
	}
	return appendGzip(dst, plain)
}

// zstdEncoders holds encoders. They are reused: an encoder has some hundred kilobytes of tables. The window bounds the
// memory of an encoder, and is longer than most bid requests.
var zstdEncoders = sync.Pool{New: func() any {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(256<<10), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return e
}}

func appendZstd(dst, plain []byte) ([]byte, bool) {
	e := zstdEncoders.Get().(*zstd.Encoder)
	defer zstdEncoders.Put(e)
	out := e.EncodeAll(plain, dst)
	if len(out)-len(dst) >= len(plain) {
		return out[:len(dst)], false
	}
	return out, true
}

// gzipWriter compresses into a slice of limited length. It is reused: a compressor has some hundred
// kilobytes of tables.
type gzipWriter struct {
	z     *gzip.Writer
	out   []byte
	limit int // of len(out)
}

var gzipWriters = sync.Pool{New: func() any {
	w := new(gzipWriter)
	w.z, _ = gzip.NewWriterLevel(w, gzip.BestSpeed) // no error: the level exists
	return w
}}

var errGzipTooLong = errors.New("compression does not make it shorter")

// Write implements io.Writer for the compressor.
func (w *gzipWriter) Write(p []byte) (int, error) {
	if len(w.out)+len(p) > w.limit {
		return 0, errGzipTooLong
	}
	w.out = append(w.out, p...)
	return len(p), nil
}

func appendGzip(dst, plain []byte) ([]byte, bool) {
	w := gzipWriters.Get().(*gzipWriter)
	defer gzipWriters.Put(w)
	w.out, w.limit = dst, len(dst)+len(plain)-1
	w.z.Reset(w)
	_, err := w.z.Write(plain)
	if err == nil {
		err = w.z.Close()
	}
	out := w.out
	w.out = nil
	if err != nil {
		return out[:len(dst)], false
	}
	return out, true
}
