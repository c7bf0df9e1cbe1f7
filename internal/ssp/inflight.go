package ssp

import "sync/atomic"

// InFlight counts what is in flight, under a limit. It is safe for concurrent
// use. The zero value has no limit.
type InFlight struct {
	n     atomic.Int64
	limit atomic.Int64 // 0 = none
}

// SetLimit changes the limit; 0 is none. What is in flight stays.
func (f *InFlight) SetLimit(n int) { f.limit.Store(int64(n)) }

// Enter counts one more, or returns false where the limit is reached.
func (f *InFlight) Enter() bool {
	n := f.n.Add(1)
	if l := f.limit.Load(); l > 0 && n > l {
		f.n.Add(-1)
		return false
	}
	return true
}

// Leave takes back an Enter that returned true.
func (f *InFlight) Leave() { f.n.Add(-1) }

// Now returns how many are in flight. For the instant in which an Enter is
// refused the count is one higher; it is cut to the limit here.
func (f *InFlight) Now() int {
	n := f.n.Load()
	if l := f.limit.Load(); l > 0 {
		n = min(n, l)
	}
	return int(n)
}

// Limit returns the limit, 0 for none.
func (f *InFlight) Limit() int { return int(f.limit.Load()) }
