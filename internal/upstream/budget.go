package upstream

import "sync/atomic"

// Budget bounds bytes of bodies that are held at once: those of all requests and
// responses, or an SSP's share, which its responses take as well. It is safe for
// concurrent use. The zero Budget allows nothing.
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

// SetLimit changes the limit. What is held stays held: where that is over a
// limit that was lowered, nothing fits until it is not.
func (b *Budget) SetLimit(limit int64) { b.limit.Store(limit) }

// Reserve takes n bytes, or takes none and returns false where they do not
// fit. A negative n is a bug of the caller.
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

// Release gives n bytes back.
func (b *Budget) Release(n int64) {
	if b.used.Add(-n) < 0 {
		panic("BUG: more bytes released than reserved")
	}
}

// Used returns the bytes held now: more than the limit only after that was
// lowered.
func (b *Budget) Used() int64 { return b.used.Load() }

// Limit returns the bytes that may be held.
func (b *Budget) Limit() int64 { return b.limit.Load() }
