package fleet

import (
	"math"
	"time"
)

// caller is what a Bucket knows from one call of Redis to the next.
type caller struct {
	called  bool          // ever
	last    time.Duration // when
	asked   *settings     // with these
	held    int           // tokens after the last call; less are left since then
	alones  uint64        // alone, as it was then
	refuses uint64        // refused, as it was then
	failing bool          // its key is of no use, as the log said
	lacking bool          // it got fewer tokens than its traffic needs
	alive   int           // replicas, by the last answer; 0 before the first
	burst   int           // in force, by the last answer
	peak    float64       // requests in a lease interval, the most of late
	rate    float64       // requests sent a second, over rateOver or so
}

const (
	// leaseCalls is how many calls may fail or be late before a lease runs out.
	leaseCalls = 8
	// peakFades is what is left of a peak after each lease interval.
	peakFades = 0.8
	// quiet is a peak that needs no provision.
	quiet    = 0.5
	rateOver = 2 * time.Second
)

// due reports whether Redis should be called: there is demand, or was of late, or
// it is time to say that this replica is alive.
func (b *Bucket) due(now time.Duration, o *Options) bool {
	return !b.called || b.asked != b.settings.Load() || b.lacking || b.peak >= quiet ||
		b.attempts(lease(b.lease.Load())) > 0 || now-b.last >= o.heartbeat()
}

// attempts is how many requests asked for a token since the last call.
func (b *Bucket) attempts(l lease) int {
	return b.held - l.tokens() + int(b.alone.Load()-b.alones) + int(b.refused.Load()-b.refuses)
}

// ask is one call; see lease.lua.
type ask struct {
	settings
	number     uint64 // of the call, higher than of any before; set by the Fleet
	keep, back int
	need, want int
	used       float64 // requests a second
	share      float64 // 0 = it was never told one
	valid      time.Duration
}

// ask makes the next call, and takes what is given back out of the bucket. Where
// the call fails nobody has that: the SSP gets less, never more.
func (b *Bucket) ask(now time.Duration, o *Options) ask {
	s := b.settings.Load()
	a := ask{settings: *s}
	if b.alive > 0 {
		a.share = b.Share()
	}
	elapsed := float64(max(now-b.last, o.LeaseInterval))
	intervals := elapsed / float64(o.LeaseInterval)
	alone, refused := b.alone.Load(), b.refused.Load()
	for {
		was := b.lease.Load()
		l := lease(was)
		spent := b.held - l.tokens()
		attempts := spent + int(alone-b.alones) + int(refused-b.refuses)
		peak := max(float64(attempts)/intervals, b.peak*math.Pow(peakFades, intervals))
		a.need, a.want = b.target(s, peak)
		has := l.tokens()
		if !l.holds(now) {
			has = 0 // they ran out with the lease
		}
		a.keep = min(has, a.want)
		a.back = has - a.keep
		if b.lease.CompareAndSwap(was, was-uint64(l.tokens()-a.keep)) {
			sent := float64(spent+int(alone-b.alones)) / (elapsed / 1e9)
			b.rate += (sent - b.rate) * (1 - math.Exp(-elapsed/float64(rateOver)))
			b.peak = peak
			break
		}
	}
	a.used = b.rate
	a.valid = leaseCalls * o.LeaseInterval
	if b.peak < quiet {
		a.valid += o.heartbeat()
	}
	b.called, b.last, b.asked, b.held, b.alones, b.refuses = true, now, s, a.keep, alone, refused
	b.lacking = false // unless the answer says so; without one, back-off says when to call
	return a
}

// target returns how many tokens the traffic needs until the call after next, at
// least one for the request that ends a pause, and how many to have with those in
// reserve for when it grows. What one has in reserve others do not get: so who has
// traffic keeps half of an even part of the burst, and who has none a quarter.
func (b *Bucket) target(s *settings, peak float64) (need, want int) {
	burst, alive := max(b.burst, s.burst), max(b.alive, 1)
	reserve := max(1, burst/(4*alive))
	most := min(max(reserve, burst-reserve*(alive-1)), maxTokens)
	if peak >= quiet {
		reserve = max(1, burst/(2*alive))
	}
	need = int(math.Ceil(1.25 * min(peak, maxTokens)))
	return min(max(1, need), most), min(need+reserve, most)
}

// answer is what Redis says to an ask.
type answer struct {
	granted int     // tokens
	share   float64 // requests a second
	alive   int     // replicas, this one too
	burst   int     // in force
}

// settle takes the answer to a, which came at this time.
func (b *Bucket) settle(a *ask, r answer, received time.Duration) {
	b.alive, b.burst = r.alive, r.burst
	b.lacking = a.need > a.keep+r.granted
	b.held += r.granted
	b.replicas.Store(int64(r.alive))
	b.leased.Add(uint64(r.granted))
	until := newLease(received+a.valid, 0).end()
	b.setShare(until, r.share, &a.settings)
	for {
		was := b.lease.Load()
		if b.lease.CompareAndSwap(was, uint64(newLease(until, lease(was).tokens()+r.granted))) {
			return
		}
	}
}
