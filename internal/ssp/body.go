package ssp

import (
	"fmt"
	"strconv"

	"adbuffer/internal/upstream"
)

// bodyCopy is a body that is not sent as it came: rewrite_tmax or gzip_request
// want it otherwise. It stands at the start of the exchange's Block, since the
// body itself is shared by all legs.
type bodyCopy struct {
	n       int // bytes of it, 0 = Request.Body is sent as it is
	gzipped bool
	made    bool
	held    int64 // bytes of the budget
}

// maxTmaxDigits is as many as the remaining time can have: 600000 ms.
const maxTmaxDigits = 6

// makeBody copies r's body into ex.Block where it must be changed. It is
// compressed once a leg; where the remaining time is written into it, that is
// done for each attempt. A copy that would not be shorter is not compressed.
func (s *SSP) makeBody(r *Request, ex *upstream.Exchange, c *bodyCopy) *upstream.Error {
	rewrite := s.opts.RewriteTmax && r.TmaxEnd > r.TmaxStart
	compress := s.opts.Gzip.Enabled && len(r.Body) > 0 && len(r.Body) >= s.opts.Gzip.MinBytes && r.Fields.ContentEncoding() == nil
	if !rewrite && (!compress || c.made) {
		return nil
	}
	if !c.reserve(r) {
		return &upstream.Error{
			Outcome: upstream.Overloaded, Progress: upstream.NotSent,
			Detail: fmt.Sprintf("a copy of the body (rewrite_tmax, gzip_request) needs %d bytes, and %d of %d are held; see server.max_buffered_bytes", len(r.Body), r.Budget.Used(), r.Budget.Limit()),
		}
	}
	pieces := [3][]byte{r.Body}
	if rewrite {
		var digits [maxTmaxDigits]byte
		pieces = [3][]byte{r.Body[:r.TmaxStart], appendRemaining(digits[:0], ex), r.Body[r.TmaxEnd:]}
	}
	c.made, c.gzipped = true, false
	b := ex.Block[:0]
	if compress {
		b, c.gzipped = appendGzip(b, len(r.Body), &pieces)
	}
	if !c.gzipped && rewrite {
		for _, p := range pieces {
			b = append(b, p...)
		}
	}
	ex.Block, c.n = b, len(b)
	return nil
}

// appendRemaining appends the milliseconds that are left, at least 1.
func appendRemaining(dst []byte, ex *upstream.Exchange) []byte {
	left := ex.Deadline.Sub(ex.Times.Lent).Milliseconds()
	return strconv.AppendInt(dst, min(max(left, 1), 999999), 10)
}

// reserve takes room for the copy from the budget, once.
func (c *bodyCopy) reserve(r *Request) bool {
	if c.held > 0 || r.Budget == nil {
		return true
	}
	n := int64(len(r.Body) + maxTmaxDigits)
	if !r.Budget.Reserve(n) {
		return false
	}
	c.held = n
	return true
}

// release gives the copy's bytes back.
func (c *bodyCopy) release(b *upstream.Budget) {
	if c.held > 0 {
		b.Release(c.held)
		c.held = 0
	}
}
