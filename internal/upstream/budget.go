package upstream

import "sync/atomic"

// Budget bounds the bytes of bodies that are held at once. One Budget covers all requests and
// responses; each SSP's share covers its responses, which count in both. It is safe for concurrent
// use. The zero Budget allows nothing.
type Budget struct {
	limit atomic.Int64
	used  atomic.Int64
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

// Reserve takes n bytes. If they do not fit, it takes none and returns false. A negative n is a bug
// of the caller.
func (b *Budget) Reserve(n int64) bool {
	if n < 0 {
		panic("BUG: negative reservation")
	}
	for {
		used := b.used.Load()
		if used+n > b.limit.Load() {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// Release releases n bytes.
func (b *Budget) Release(n int64) {
	if b.used.Add(-n) < 0 {
		panic("BUG: more bytes released than reserved")
	}
}

// Used returns the bytes that are held. They exceed the limit only after the limit was lowered.
func (b *Budget) Used() int64 { return b.used.Load() }

// Limit returns the bytes that may be held.
func (b *Budget) Limit() int64 { return b.limit.Load() }
