package ssp

import (
	"errors"
	"sync"

	"github.com/klauspost/compress/gzip"
)

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

// appendGzip appends plain to dst, compressed. If the result is not shorter than plain, it returns dst
// unchanged, and false.
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
