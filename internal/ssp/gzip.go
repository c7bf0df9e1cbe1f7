package ssp

import (
	"errors"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// gzipWriter compresses into a slice of limited length. It is reused: a
// compressor has some hundred kilobytes of tables.
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

var errGzipTooLong = errors.New("compressing does not make it shorter")

// Write implements io.Writer for the compressor.
func (w *gzipWriter) Write(p []byte) (int, error) {
	if len(w.out)+len(p) > w.limit {
		return 0, errGzipTooLong
	}
	w.out = append(w.out, p...)
	return len(p), nil
}

// appendGzip appends what the pieces are in a row, compressed, to dst. Where
// that is not shorter than length, it returns dst as it was, and false.
func appendGzip(dst []byte, length int, pieces *[3][]byte) ([]byte, bool) {
	w := gzipWriters.Get().(*gzipWriter)
	defer gzipWriters.Put(w)
	w.out, w.limit = dst, len(dst)+length-1
	w.z.Reset(w)
	var err error
	for _, p := range pieces {
		if err == nil && len(p) > 0 {
			_, err = w.z.Write(p)
		}
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
