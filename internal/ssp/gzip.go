package ssp

import (
	"errors"
	"strconv"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// gzipWriter compresses into a slice of limited length. It is reused: a compressor has some hundred
// kilobytes of tables.
type gzipWriter struct {
	z     *gzip.Writer
	out   []byte
	limit int // of len(out)

	digits [maxTmaxDigits]byte // here, because the compressor's input must not be on a stack
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

// appendGzip appends before, number and behind to dst, compressed; number may be noNumber. If the
// result is not shorter than length, it returns dst unchanged, and false.
func appendGzip(dst []byte, length int, before []byte, number int64, behind []byte) ([]byte, bool) {
	w := gzipWriters.Get().(*gzipWriter)
	defer gzipWriters.Put(w)
	w.out, w.limit = dst, len(dst)+length-1
	w.z.Reset(w)
	_, err := w.z.Write(before)
	if err == nil && number != noNumber {
		_, err = w.z.Write(strconv.AppendInt(w.digits[:0], number, 10))
	}
	if err == nil && len(behind) > 0 {
		_, err = w.z.Write(behind)
	}
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
