package ssp

import (
	"errors"
	"strconv"
	"sync"

	"github.com/klauspost/compress/gzip"

	"adbuffer/internal/upstream"
)

// bodyCopy is a body that rewrite_tmax or gzip_request changes. It is at the start of the
// exchange's Block, since all legs share the original body.
type bodyCopy struct {
	n        int // its length; 0 = Request.Body is sent unchanged
	gzipped  bool
	made     bool
	reserved int64 // bytes of the budget
}

// maxTmax is the longest time, in milliseconds, that adbuffer writes. deadline.max is at most
// 600000.
const (
	maxTmax       = 999999
	maxTmaxDigits = 6
)

// makeBody copies r's body into ex.Block if it must be changed. It compresses the body once per
// leg, and writes the remaining time into it for each attempt. A body that compression does not
// shorten stays uncompressed.
func (s *SSP) makeBody(r *Request, ex *upstream.Exchange, c *bodyCopy) *upstream.Error {
	rewrite := s.opts.RewriteTmax && r.TmaxEnd > r.TmaxStart
	compress := s.opts.Gzip.Enabled && len(r.Body) > 0 && len(r.Body) >= s.opts.Gzip.MinBytes && r.Fields.ContentEncoding() == nil
	if !rewrite && (!compress || c.made) {
		return nil
	}
	if !c.reserve(r) {
		return upstream.Errorf(upstream.Overloaded, upstream.NotSent,
			"a copy of the body (rewrite_tmax, gzip_request) needs %d bytes, and %d of %d are held; see server.max_buffered_bytes", len(r.Body), r.Budget.Used(), r.Budget.Limit())
	}
	before, left, behind := r.Body, noNumber, []byte(nil)
	if rewrite {
		before, left, behind = r.Body[:r.TmaxStart], remaining(ex), r.Body[r.TmaxEnd:]
	}
	c.made, c.gzipped = true, false
	b := ex.Block[:0]
	if compress {
		b, c.gzipped = appendGzip(b, len(r.Body), before, left, behind)
	}
	if !c.gzipped && rewrite {
		b = append(b, before...)
		b = strconv.AppendInt(b, left, 10)
		b = append(b, behind...)
	}
	ex.Block, c.n = b, len(b)
	return nil
}

// noNumber means that no number is between the two parts of a body.
const noNumber int64 = -1

// remaining returns the milliseconds until the deadline, at least 1.
func remaining(ex *upstream.Exchange) int64 {
	return min(max(ex.Deadline.Sub(ex.Times.Acquired).Milliseconds(), 1), maxTmax)
}

// reserve takes the bytes of the copy from the budget, once.
func (c *bodyCopy) reserve(r *Request) bool {
	if c.reserved > 0 || r.Budget == nil {
		return true
	}
	n := int64(len(r.Body) + maxTmaxDigits)
	if !r.Budget.Reserve(n) {
		return false
	}
	c.reserved = n
	return true
}

func (c *bodyCopy) release(b *upstream.Budget) {
	if c.reserved > 0 {
		b.Release(c.reserved)
		c.reserved = 0
	}
}

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
