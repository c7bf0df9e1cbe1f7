package ssp

import (
	"strconv"

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
