package rates

import (
	"math"
	"sync/atomic"
	"time"
)

// Bucket is a token bucket whose state is one number: the time when it will be full again. This is
// GCRA, the "virtual scheduling" of ATM's leaky bucket. Taking a token moves that time by one
// interval. No token is free if that time would be more than burst intervals ahead. The operation
// is one compare-and-swap.
//
// Times count from a moment that the caller chooses, in nanoseconds. They are floats, so that an
// interval of 142.86 ns is not truncated to 142. It is safe for concurrent use. The zero Bucket has
// no tokens.
type Bucket struct {
	interval atomic.Uint64 // math.Float64bits of the nanoseconds between tokens; 0 = no tokens
	ahead    atomic.Uint64 // math.Float64bits of burst * interval
	full     atomic.Uint64 // math.Float64bits of when the bucket is full
}

// maxInterval is 31 years. The interval of the lowest rates would be infinite, and tokens would never
// be missing.
const maxInterval = 1e18

// Start sets the rate, in tokens per second, and the burst. At the time now, missing tokens are
// missing from a full bucket. If missing is 0 the bucket is full at any time; if it is burst, the
// bucket is empty.
func (b *Bucket) Start(now time.Duration, rate, burst, missing float64) {
	interval, full := 0.0, 0.0
	if rate > 0 {
		interval = min(1e9/rate, maxInterval)
	}
	if missing > 0 {
		full = float64(now) + missing*interval
	}
	b.full.Store(math.Float64bits(full))
	b.ahead.Store(math.Float64bits(burst * interval))
	b.interval.Store(math.Float64bits(interval))
}

// Take takes a token, or returns false if none is free.
func (b *Bucket) Take(now time.Duration) bool {
	for {
		was, next, ok := b.next(now)
		if !ok {
			return false
		}
		if b.full.CompareAndSwap(was, next) {
			return true
		}
	}
}

// Has reports whether a token is free.
func (b *Bucket) Has(now time.Duration) bool {
	_, _, ok := b.next(now)
	return ok
}

// Missing returns how many tokens are missing from a full bucket.
func (b *Bucket) Missing(now time.Duration) float64 {
	interval := math.Float64frombits(b.interval.Load())
	if interval == 0 {
		return 0
	}
	return max(0, math.Float64frombits(b.full.Load())-float64(now)) / interval
}

// next returns b.full before and after the taking of a token, and whether a token is free.
func (b *Bucket) next(now time.Duration) (was, next uint64, ok bool) {
	interval, ahead := math.Float64frombits(b.interval.Load()), math.Float64frombits(b.ahead.Load())
	if interval == 0 {
		return 0, 0, false
	}
	was = b.full.Load()
	full := max(math.Float64frombits(was), float64(now)) + interval
	// A thousandth of an interval compensates rounding; without it, a full bucket could lack its last
	// token.
	return was, math.Float64bits(full), full-float64(now) <= ahead+interval/1000
}
