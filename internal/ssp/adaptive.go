package ssp

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"adbuffer/internal/rates"
)

// adaptive adapts the limit of requests in flight to the SSP's latency. It follows a gradient, like
// Netflix's concurrency-limits and Envoy's adaptive concurrency. Once per window:
//
//	limit = gradient*limit + sqrt(limit)    gradient = 1.5 * base / latency
//
// latency is the window's mean, without the slowest groups of clients if the others have enough
// requests: rates.Group. base is the latency of an SSP without a queue. While the latency is within
// 1.5 times the base, the limit has no effect: it grows, but only while it is used. If the latency
// rises because the SSP has a queue, the limit falls until that queue is about sqrt(limit) long. It
// falls from the number in use, not from the allowed number, and never below the floor.
//
// In a faster window, the base falls by half of the difference. In a window that is not slow, it
// rises by a hundredth of it, and so follows slow changes over the day. While the limit refuses
// requests, a probe every 30 s also moves the base by half. The probe is a window with half the
// limit. During the probe a queue that adbuffer causes disappears. If the SSP is still slow, its
// own work is slow. So an SSP that has become slower permanently gets its requests back within
// about a minute. An overloaded SSP does not.
//
// Times are since the SSP was made. It is safe for concurrent use.
type adaptive struct {
	inFlight *InFlight // its limit is adapted

	// The window. Latencies observed while it closes may count in the next one.
	latencies rates.Means  // ns
	peak      atomic.Int64 // most requests in flight
	until     atomic.Int64 // ns; the window does not close before
	mu        sync.Mutex   // held by the goroutine that closes the window; guards the fields below

	enabled     bool // otherwise observations are dropped
	floor       int
	ceiling     int // max_in_flight; 0 = none
	probe       probePhase
	nextProbe   time.Duration
	limitBefore int // the limit before the probe

	// For error texts and Snapshot; ns, 0 before the first window.
	base, latency atomic.Int64
}

type probePhase uint8

const (
	notProbing probePhase = iota
	settling              // the limit was halved; responses to earlier requests still arrive
	measuring             // a window with half the limit
)

const (
	adaptiveWindow     = 500 * time.Millisecond
	adaptiveMinSamples = 50  // a window waits for this many, so that noise does not count as a gradient
	adaptiveEnough     = 10  // latencies of other clients, so that the slowest clients do not count
	adaptiveTolerance  = 1.5 // up to this multiple of the base, a latency is not slow
	adaptiveProbeEvery = 30 * time.Second
	adaptiveSuspect    = 1.25 // above this multiple of the base, a probe starts
	minGradient        = 0.5
)

func (a *adaptive) init(o AdaptiveOptions, ceiling int, f *InFlight) {
	a.enabled, a.floor, a.ceiling, a.inFlight = o.Enabled, o.floorUnder(ceiling), ceiling, f
	a.until.Store(int64(adaptiveWindow))
	a.nextProbe = adaptiveProbeEvery
}

// floorUnder returns the floor, at most max_in_flight.
func (o *AdaptiveOptions) floorUnder(maxInFlight int) int {
	floor := max(o.Floor, 1)
	if maxInFlight > 0 {
		floor = min(floor, maxInFlight)
	}
	return floor
}

// set changes the settings. A lowered limit stays as far as the settings allow; a current probe
// ends.
func (a *adaptive) set(o AdaptiveOptions, ceiling int, now time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	limit := a.inFlight.Limit()
	if a.probe != notProbing {
		limit, a.probe = a.limitBefore, notProbing
	}
	lowered := a.enabled && limit != a.ceiling
	if o.Enabled && !a.enabled { // the old measurements are out of date
		a.latencies.Take(0)
		a.peak.Store(0)
		a.base.Store(0)
		a.latency.Store(0)
	}
	a.enabled, a.floor, a.ceiling = o.Enabled, o.floorUnder(ceiling), ceiling
	a.nextProbe = now + adaptiveProbeEvery
	switch {
	case !a.enabled || !lowered:
		limit = ceiling
	case ceiling > 0:
		limit = min(max(limit, a.floor), ceiling)
	default:
		limit = max(limit, a.floor)
	}
	a.inFlight.SetLimit(limit)
}

// detach stops a from setting the limit, because another adaptive sets it from now on.
func (a *adaptive) detach() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.enabled = false
}

// observe records the latency of a client's exchange that is about to end. After a timeout, latency is
// how long the SSP had.
func (a *adaptive) observe(now time.Duration, client rates.Group, latency time.Duration) {
	storeMax(&a.peak, int64(a.inFlight.Now()))
	a.latencies.Add(client, max(1, int64(latency)))
	if int64(now) >= a.until.Load() && a.latencies.Count() >= adaptiveMinSamples && a.mu.TryLock() {
		defer a.mu.Unlock()
		a.closeLocked(now)
	}
}

// storeMax stores n in v if it is larger.
func storeMax(v *atomic.Int64, n int64) {
	for was := v.Load(); n > was && !v.CompareAndSwap(was, n); was = v.Load() {
	}
}

// closeLocked closes the window, and updates base and limit.
func (a *adaptive) closeLocked(now time.Duration) {
	if int64(now) < a.until.Load() {
		return // another goroutine has just closed it
	}
	count, latency := a.latencies.Take(adaptiveEnough)
	peak := int(a.peak.Swap(0))
	a.until.Store(int64(now + adaptiveWindow))
	if count == 0 || !a.enabled {
		return
	}

	limit := a.inFlight.Limit()
	limited := limit > 0 && peak >= limit
	base := float64(a.base.Load())
	switch {
	case base == 0:
		base = latency
	case latency < base, a.probe == measuring:
		base += (latency - base) / 2
	case latency <= adaptiveTolerance*base:
		base += (latency - base) / 100
	}
	a.base.Store(int64(base))
	a.latency.Store(int64(latency))

	switch a.probe {
	case settling:
		a.probe = measuring
		return
	case measuring:
		a.probe, a.nextProbe = notProbing, now+adaptiveProbeEvery
		a.inFlight.SetLimit(a.limitBefore)
		return
	}
	limit = a.next(limit, peak, adaptiveTolerance*base/latency)
	switch {
	case latency < adaptiveSuspect*base:
		a.nextProbe = now + adaptiveProbeEvery
	case limited && now >= a.nextProbe:
		a.probe, a.limitBefore = settling, limit
		limit = max(limit/2, a.floor)
	}
	a.inFlight.SetLimit(limit)
}

// next returns the limit that follows limit; 0 means none.
func (a *adaptive) next(limit, peak int, gradient float64) int {
	if gradient >= 1 {
		if limit == 0 || peak < limit/2 {
			return limit // not used: without load, growth would give no information about the SSP
		}
	} else if limit == 0 || peak < limit {
		limit = peak
	}
	n := int(max(gradient, minGradient)*float64(limit) + math.Sqrt(float64(limit)))
	n = max(n, a.floor)
	if a.ceiling > 0 {
		n = min(n, a.ceiling)
	}
	return n
}
