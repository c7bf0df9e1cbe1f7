package ssp

import "sync/atomic"

// InFlight counts requests in flight, under a limit. It is safe for concurrent use. The zero value
// has no limit.
type InFlight struct {
	n       atomic.Int64
	limit   atomic.Int64 // 0 = none
	refused atomic.Uint64
}

// SetLimit changes the limit; 0 means none. Requests in flight stay, so the count may exceed a
// lowered limit.
func (f *InFlight) SetLimit(n int) { f.limit.Store(int64(n)) }

// Acquire counts one more request, or returns false if the limit is reached. The count is exact: it
// never includes a refused Acquire.
func (f *InFlight) Acquire() bool {
	for {
		n := f.n.Load()
		if l := f.limit.Load(); l > 0 && n >= l {
			f.refused.Add(1)
			return false
		}
		if f.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release releases a successful Acquire.
func (f *InFlight) Release() {
	if f.n.Add(-1) < 0 {
		panic("BUG: more released than acquired")
	}
}

// Now returns the number of requests in flight.
func (f *InFlight) Now() int { return int(f.n.Load()) }

// Refused returns how often Acquire returned false.
func (f *InFlight) Refused() uint64 { return f.refused.Load() }

// Limit returns the limit, 0 for none.
func (f *InFlight) Limit() int { return int(f.limit.Load()) }
