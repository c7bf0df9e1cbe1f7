package upstream

import "sync/atomic"

// Budget bounds the bytes of bodies that are held at once, over all requests
// and answers. It is safe for concurrent use. The zero Budget allows nothing.
type Budget struct {
	limit int64
	used  atomic.Int64
}

// NewBudget returns a Budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Reserve takes n bytes, or takes none and returns false where they do not
// fit. A negative n is a bug of the caller.
func (b *Budget) Reserve(n int64) bool {
	if n < 0 {
		panic("BUG: negative reservation")
	}
	if b.used.Add(n) > b.limit {
		b.used.Add(-n)
		return false
	}
	return true
}

// Release gives n bytes back.
func (b *Budget) Release(n int64) {
	if b.used.Add(-n) < 0 {
		panic("BUG: more bytes released than reserved")
	}
}

// Used returns the bytes held now. It can pass the limit for the instant in
// which a reservation that does not fit is taken back; it is cut to the limit
// here, since those bytes are never held.
func (b *Budget) Used() int64 { return min(b.used.Load(), b.limit) }

// Limit returns the bytes that may be held.
func (b *Budget) Limit() int64 { return b.limit }
