package ssp

import (
	"slices"
	"strconv"
	"time"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/openrtb"
)

// bodyCopy is a body that rewrite_tmax, remove, set or compress changes. It is at the start of the
// exchange's Block, since all legs share the original body.
type bodyCopy struct {
	n        int    // its length; 0 = Request.Body is sent unchanged
	coding   Coding // compress has changed the body; "" = it has not
	made     bool
	reserved int64 // bytes of the budget and of the SSP's share
}

// maxTmax is the longest time, in milliseconds, that adbuffer writes. deadline.max is at most
// 600000.
const (
	maxTmax       = 999999
	maxTmaxDigits = 6
)

// makeBody copies r's body into ex.Block if it must be changed: by remove and set, by rewrite_tmax, and by
// compress, in this order. If the remaining time is written into the body, it makes the body again for each
// attempt; otherwise once per exchange. A body that compression does not shorten stays uncompressed.
func (s *SSP) makeBody(r *Request, ex *exchange.Exchange, c *bodyCopy) *exchange.Error {
	edit := s.opts.Edit != nil && len(r.Body) > 0
	rewrite := s.opts.RewriteTmax && (r.TmaxEnd > r.TmaxStart || edit && s.opts.Edit.Sets("tmax"))
	compress := s.compresses(r)
	if !rewrite && (c.made || !edit && !compress) {
		return nil
	}
	copies := 0
	if rewrite || edit {
		copies++
	}
	if compress {
		copies++
	}
	if err := s.reserveCopy(r, c, copies); err != nil {
		return err
	}
	b, plain, start, end := ex.Block[:0], r.Body, r.TmaxStart, r.TmaxEnd
	if edit {
		var err *exchange.Error
		b, err = s.appendEdited(b, r)
		if err != nil {
			return err
		}
		start, end, _ = findTmax.Find(b)
	} else if rewrite {
		b = append(b, r.Body...)
	}
	if rewrite && start < end && (b[start] == '-' || b[start] >= '0' && b[start] <= '9') { // not a string or null
		var digits [maxTmaxDigits]byte
		b = slices.Replace(b, start, end, strconv.AppendInt(digits[:0], remaining(ex, s.opts.TmaxMargin), 10)...)
	}
	if len(b) > 0 {
		plain = b
	}
	if compress {
		n := len(b)
		var shorter bool
		b, shorter = s.opts.Compress.Coding.Append(b, plain[:len(plain):len(plain)])
		c.coding = ""
		if shorter {
			c.coding = s.opts.Compress.Coding
			b = b[:copy(b, b[n:])]
		}
	}
	ex.Block, c.n, c.made = b, len(b), true
	return nil
}

var findTmax = openrtb.NewFinder(openrtb.Path{"tmax"})

// appendEdited appends r's body with the changes for s.
func (s *SSP) appendEdited(b []byte, r *Request) ([]byte, *exchange.Error) {
	f := openrtb.AcquireFacts()
	defer f.Release()
	f.Consent = r.Consent
	before := len(b)
	b, changed := s.opts.Edit.Apply(b, r.Body, f)
	if f.Reason != openrtb.Readable {
		return b, &exchange.Error{Outcome: exchange.Filtered, Progress: exchange.NotSent, Detail: CannotEdit(f.Reason)}
	}
	if !changed {
		return append(b, r.Body...), nil
	}
	if n := len(b) - before; n > max(s.opts.MaxBodyBytes, len(r.Body)) {
		return b, exchange.Errorf(exchange.TooLarge, exchange.NotSent, "ssps[].set makes the body %d bytes long, over %d; see server.max_body_bytes", n, s.opts.MaxBodyBytes)
	}
	return b, nil
}

// CannotEdit says why ssps[].remove and ssps[].set cannot be applied to a body.
func CannotEdit(why openrtb.Reason) string {
	if why == openrtb.WrongType {
		return "ssps[].set cannot change the body: " + why.Text()
	}
	return "ssps[].remove and set cannot read the body: " + why.Text()
}

// compresses reports whether compress applies to r's body.
func (s *SSP) compresses(r *Request) bool {
	o := &s.opts.Compress
	return (o.Coding == CodingGzip || o.Coding == CodingZstd) && len(r.Body) > 0 && len(r.Body) >= o.MinBytes && r.Fields.ContentEncoding() == nil
}

// reserveCopy reserves the bytes of the given number of copies of the body. Later attempts reuse them.
func (s *SSP) reserveCopy(r *Request, c *bodyCopy, copies int) *exchange.Error {
	if c.reserved > 0 {
		return nil
	}
	n := int64(copies*len(r.Body) + maxTmaxDigits)
	if growth := s.growth(); growth > 0 {
		n += int64(len(r.Body) + copies*growth) // the body between removals and sets
	}
	if err := exchange.ReserveForRequest(s.buffered, r.Budget, n, "a copy of the body (rewrite_tmax, remove, set, compress)"); err != nil {
		return err
	}
	c.reserved = n
	return nil
}

// remaining returns the milliseconds from the acquisition of the place until margin before the deadline, at least 1
// and at most maxTmax.
func remaining(ex *exchange.Exchange, margin time.Duration) int64 {
	return min(max((ex.Deadline.Sub(ex.Times.Acquired)-margin).Milliseconds(), 1), maxTmax)
}

// growth returns how many bytes longer an edited body may be.
func (s *SSP) growth() int {
	if s.opts.Edit == nil {
		return 0
	}
	return s.opts.Edit.Growth()
}

func (s *SSP) releaseCopyBytes(r *Request, c *bodyCopy) {
	s.buffered.Release(c.reserved)
	r.Budget.Release(c.reserved)
	c.reserved = 0
}
