package exchange

import "sync/atomic"

// Budget bounds the bytes of bodies that are held at once. One Budget covers all requests and responses. Each SSP's
// share is a Budget that covers the SSP's responses, and the requests to the SSP that have not ended. A Budget is
// safe for concurrent use. The zero Budget allows no bytes, a nil *Budget any number.
type Budget struct {
	limit   atomic.Int64
	used    atomic.Int64
	refused atomic.Uint64
	from    atomic.Pointer[string] // see From
}

// NewBudget returns a Budget of limit bytes.
func NewBudget(limit int64) *Budget {
	b := new(Budget)
	b.SetLimit(limit)
	return b
}

// SetLimit changes the limit. Bytes that are held stay held. While they exceed a lowered limit,
// Reserve fails.
func (b *Budget) SetLimit(limit int64) { b.limit.Store(limit) }

// SetFrom sets the result of From; "" = the name of the setting alone.
func (b *Budget) SetFrom(from string) { b.from.Store(&from) }

// From names the setting that limits the bytes of all requests and responses. If the limit is lower than the setting,
// From also says why.
func (b *Budget) From() string {
	if from := b.from.Load(); from != nil && *from != "" {
		return *from
	}
	return "server.max_buffered_bytes"
}

// Reserve reserves n bytes. If they do not fit, it reserves none and returns false. It panics if n is negative.
func (b *Budget) Reserve(n int64) bool { return b.reserve(n, false) }

// Hold counts n bytes that are held already, even if they exceed the limit. The caller must bound them.
func (b *Budget) Hold(n int64) { b.used.Add(n) }

// reserve is Reserve, except that bytes of a request must leave a quarter of the limit to responses: otherwise the
// SSP would process requests whose responses do not fit.
func (b *Budget) reserve(n int64, forRequest bool) bool {
	switch {
	case n < 0:
		panic("BUG: negative reservation")
	case n == 0, b == nil:
		return true
	}
	for {
		used, limit := b.used.Load(), b.limit.Load()
		if forRequest {
			limit -= limit / 4
		}
		if used+n > limit {
			b.refused.Add(1)
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// Release releases n bytes.
func (b *Budget) Release(n int64) {
	if n != 0 && b != nil && b.used.Add(-n) < 0 {
		panic("BUG: more bytes released than reserved")
	}
}

// Used returns the bytes that are held. They exceed the limit only after the limit was lowered, and
// after Hold.
func (b *Budget) Used() int64 { return b.used.Load() }

// Refused returns how often bytes did not fit.
func (b *Budget) Refused() uint64 { return b.refused.Load() }

// Limit returns the bytes that may be held.
func (b *Budget) Limit() int64 { return b.limit.Load() }

// ReserveForRequest reserves n bytes in both share, an SSP's share, and all, or in neither. what names the part of a
// request that the bytes are for. Requests leave a quarter of the share to responses. If the bytes do not fit,
// ReserveForRequest returns an *Error with Outcome Overloaded and Progress NotSent that names the limit. A nil Budget
// has no limit.
func ReserveForRequest(share, all *Budget, n int64, what string) *Error {
	e := reserveBoth(share, all, n, true)
	if e != nil {
		e.Progress, e.Detail = NotSent, what+" does not fit: "+e.Detail
	}
	return e
}

func reserveBoth(share, all *Budget, n int64, forRequest bool) *Error {
	if !share.reserve(n, forRequest) {
		return overBudget(share, n, "the SSP's requests and responses", "ssps[].max_buffered_bytes")
	}
	if !all.Reserve(n) {
		share.Release(n)
		return overBudget(all, n, "all requests and responses", all.From())
	}
	return nil
}

func overBudget(b *Budget, n int64, holder, setting string) *Error {
	return Errorf(Overloaded, MaybeProcessed, "it needs %d more bytes, and %d of %d are held for %s; see %s", n, b.Used(), b.Limit(), holder, setting)
}
