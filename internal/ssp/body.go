package ssp

import (
	"slices"
	"strconv"

	"adbuffer/internal/openrtb"
	"adbuffer/internal/upstream"
)

// bodyCopy is a body that rewrite_tmax, remove or gzip_request changes. It is at the start of the
// exchange's Block, since all legs share the original body.
type bodyCopy struct {
	n        int // its length; 0 = Request.Body is sent unchanged
	gzipped  bool
	made     bool
	reserved int64 // bytes of the budget and of the SSP's share
}

// maxTmax is the longest time, in milliseconds, that adbuffer writes. deadline.max is at most
// 600000.
const (
	maxTmax       = 999999
	maxTmaxDigits = 6
)

// makeBody copies r's body into ex.Block if it must be changed. It compresses the body once per
// call, and writes the remaining time into it for each attempt. A body that compression does not
// shorten stays uncompressed.
func (s *SSP) makeBody(r *Request, ex *upstream.Exchange, c *bodyCopy) *upstream.Error {
	if s.opts.Remove != nil && len(r.Body) > 0 {
		return s.makeEditedBody(r, ex, c)
	}
	rewrite := s.opts.RewriteTmax && r.TmaxEnd > r.TmaxStart
	compress := s.compresses(r)
	if !rewrite && (!compress || c.made) {
		return nil
	}
	if err := s.reserveCopy(r, c, 1); err != nil {
		return err
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

// compresses reports whether gzip_request compresses r's body.
func (s *SSP) compresses(r *Request) bool {
	return s.opts.Gzip.Enabled && len(r.Body) > 0 && len(r.Body) >= s.opts.Gzip.MinBytes && r.Fields.ContentEncoding() == nil
}

// reserveCopy reserves the bytes of so many copies of the body, once for a call.
func (s *SSP) reserveCopy(r *Request, c *bodyCopy, copies int) *upstream.Error {
	if c.reserved > 0 {
		return nil
	}
	n := int64(copies*len(r.Body) + maxTmaxDigits)
	if err := upstream.ReserveForRequest(s.buffered, r.Budget, n, "a copy of the body (rewrite_tmax, remove, gzip_request)"); err != nil {
		return err
	}
	c.reserved = n
	return nil
}

var findTmax = openrtb.NewFinder(openrtb.Path{"tmax"})

// makeEditedBody copies r's body into ex.Block without the members that s does not get, writes the remaining time
// into it, and compresses it.
func (s *SSP) makeEditedBody(r *Request, ex *upstream.Exchange, c *bodyCopy) *upstream.Error {
	rewrite := s.opts.RewriteTmax && r.TmaxEnd > r.TmaxStart
	if c.made && !rewrite {
		return nil
	}
	compress := s.compresses(r)
	copies := 1
	if compress {
		copies = 2
	}
	if err := s.reserveCopy(r, c, copies); err != nil {
		return err
	}
	f := openrtb.AcquireFacts()
	defer f.Release()
	b, changed := s.opts.Remove.Apply(ex.Block[:0], r.Body, f)
	if f.Reason != openrtb.Readable {
		return upstream.Errorf(upstream.Filtered, upstream.NotSent, "ssps[].remove cannot read the body: %s", f.Reason.Text())
	}
	if !changed {
		b = append(b, r.Body...)
	}
	if start, end := findTmax.Find(b); rewrite && start < end {
		var digits [maxTmaxDigits]byte
		b = slices.Replace(b, start, end, strconv.AppendInt(digits[:0], remaining(ex), 10)...)
	}
	if compress {
		plain := len(b)
		b, c.gzipped = appendGzip(b, plain, b[:plain:plain], noNumber, nil)
		if c.gzipped {
			b = b[:copy(b, b[plain:])]
		}
	}
	ex.Block, c.n, c.made = b, len(b), true
	return nil
}

// noNumber means that no number is between the two parts of a body.
const noNumber int64 = -1

// remaining returns the milliseconds until the deadline, at least 1.
func remaining(ex *upstream.Exchange) int64 {
	return min(max(ex.Deadline.Sub(ex.Times.Acquired).Milliseconds(), 1), maxTmax)
}

func (s *SSP) releaseCopy(r *Request, c *bodyCopy) {
	s.buffered.Release(c.reserved)
	r.Budget.Release(c.reserved)
	c.reserved = 0
}
