package ssp

import "sync/atomic"

// InFlight counts what is in flight, under a limit. It is safe for concurrent
// use. The zero value has no limit.
type InFlight struct {
	n     atomic.Int64
	limit atomic.Int64 // 0 = none
}

// SetLimit changes the limit; 0 is none. What is in flight stays, so that the
// count may be above a limit that was lowered.
func (f *InFlight) SetLimit(n int) { f.limit.Store(int64(n)) }

// Enter counts one more, or returns false where the limit is reached. The count
// is exact: an Enter that is refused is never part of it.
func (f *InFlight) Acquire() bool {
	for {
		n := f.n.Load()
		if l := f.limit.Load(); l > 0 && n >= l {
			return false
		}
		if f.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Leave takes back an Enter that returned true.
func (f *InFlight) Release() {
	if f.n.Add(-1) < 0 {
		panic("BUG: more left than entered")
	}
}

// Now returns how many are in flight.
func (f *InFlight) Now() int { return int(f.n.Load()) }

// Limit returns the limit, 0 for none.
func (f *InFlight) Limit() int { return int(f.limit.Load()) }
