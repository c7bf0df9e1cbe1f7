package rates

import (
	"math"
	"sync/atomic"
	"time"
)

// Bucket is a token bucket whose state is one number: the time at which it will be full again. This is GCRA, the
// "virtual scheduling" of ATM's leaky bucket. Taking a token moves that time by one interval, with one
// compare-and-swap. No token is free if the time would then be more than burst intervals ahead of now.
//
// Times count from a moment that the caller chooses, in nanoseconds. They are floats, so that an interval of 142.86
// ns is not truncated to 142. A Bucket is safe for concurrent use. The zero Bucket has no tokens.
type Bucket struct {
	interval atomic.Uint64 // math.Float64bits of the nanoseconds between tokens; 0 = no tokens
	maxAhead atomic.Uint64 // math.Float64bits of how far full may be ahead of now: burst * interval
	full     atomic.Uint64 // math.Float64bits of the time at which the bucket is full
}

// maxInterval is 31 years. It keeps the interval of the lowest rates finite: with an infinite interval, tokens would
// never run out.
const maxInterval = 1e18

// Start sets the rate, in tokens per second, the burst, and the state at the time now: deficit is how many tokens the
// bucket then lacks. With a deficit of 0 the bucket is full, at whatever time it is used first; with a deficit of
// burst it is empty.
func (b *Bucket) Start(now time.Duration, rate, burst, deficit float64) {
	interval, full := 0.0, 0.0
	if rate > 0 {
		interval = min(1e9/rate, maxInterval)
	}
	if deficit > 0 {
		full = float64(now) + deficit*interval
	}
	b.full.Store(math.Float64bits(full))
	b.maxAhead.Store(math.Float64bits(burst * interval))
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

// Deficit returns how many tokens the bucket lacks.
func (b *Bucket) Deficit(now time.Duration) float64 {
	interval := math.Float64frombits(b.interval.Load())
	if interval == 0 {
		return 0
	}
	return max(0, math.Float64frombits(b.full.Load())-float64(now)) / interval
}

// next returns the values of b.full before and after a token is taken, and whether a token is free.
func (b *Bucket) next(now time.Duration) (was, next uint64, ok bool) {
	interval, maxAhead := math.Float64frombits(b.interval.Load()), math.Float64frombits(b.maxAhead.Load())
	if interval == 0 {
		return 0, 0, false
	}
	was = b.full.Load()
	full := max(math.Float64frombits(was), float64(now)) + interval
	// A thousandth of an interval compensates for rounding, which could make the last token of a full bucket
	// unavailable.
	return was, math.Float64bits(full), full-float64(now) <= maxAhead+interval/1000
}
