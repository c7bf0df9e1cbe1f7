package fleet

import (
	"math"
	"sync/atomic"
	"time"
)

// pace is a token bucket of one replica alone, kept as one number: when it will
// be full again. It is safe for concurrent use. The zero value lets nothing
// through.
type pace struct {
	interval atomic.Uint64 // math.Float64bits of the nanoseconds between tokens; 0 = there are none
	ahead    atomic.Uint64 // math.Float64bits of burst * interval
	full     atomic.Uint64 // math.Float64bits of when it is full
}

// restart makes it empty at a time, and fills it from then on at rate tokens a
// second up to burst.
func (p *pace) restart(at time.Duration, rate, burst float64) {
	interval := 0.0
	if rate > 0 {
		interval = 1e9 / rate
	}
	ahead := burst * interval
	p.full.Store(math.Float64bits(float64(at) + ahead))
	p.ahead.Store(math.Float64bits(ahead))
	p.interval.Store(math.Float64bits(interval))
}

// take takes a token, where there is one.
func (p *pace) take(now time.Duration) bool {
	for {
		was, next, ok := p.next(now)
		if !ok {
			return false
		}
		if p.full.CompareAndSwap(was, next) {
			return true
		}
	}
}

// has reports whether there is a token.
func (p *pace) has(now time.Duration) bool {
	_, _, ok := p.next(now)
	return ok
}

// next returns p.full as it is, and with one token less, and whether there is one.
func (p *pace) next(now time.Duration) (was, next uint64, ok bool) {
	interval, ahead := math.Float64frombits(p.interval.Load()), math.Float64frombits(p.ahead.Load())
	if interval == 0 {
		return 0, 0, false
	}
	was = p.full.Load()
	full := max(math.Float64frombits(was), float64(now)) + interval
	// A thousandth of an interval for what floats round away.
	return was, math.Float64bits(full), full-float64(now) <= ahead+interval/1000
}
