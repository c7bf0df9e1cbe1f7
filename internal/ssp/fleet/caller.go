package fleet

import (
	"math"
	"time"
)

// callState holds what a Bucket must remember from one call of Redis to the next.
type callState struct {
	lastCall     time.Duration // time of the last call
	lastSettings *settings     // settings of the last call; nil before the first
	held         int           // tokens of the lease just after the last call
	lastAlone    uint64        // value of Bucket.alone at the last call
	lastRefused  uint64        // value of Bucket.refused at the last call
	keyFailing   bool          // the bucket's key in Redis cannot be used, which has been logged
	needsMore    bool          // the bucket got fewer tokens than its traffic needs
	peak         float64       // highest number of requests in a recent lease interval
	rate         float64       // requests sent per second, averaged over rateOver
}

const (
	// leaseCalls is the length of a lease in LeaseIntervals: how many calls may fail or be late before it ends.
	leaseCalls = 8
	// peakFade is the factor by which a peak shrinks in each lease interval.
	peakFade = 0.8
	// A bucket whose peak is below minPeak counts as one without traffic: heartbeats suffice, and its reserve is
	// smaller.
	minPeak  = 0.5
	rateOver = 2 * time.Second
)

// due reports whether Redis must be called: requests need tokens or needed them recently, or a heartbeat is due.
func (b *Bucket) due(now time.Duration, o *Options) bool {
	return b.lastSettings != b.settings.Load() || b.needsMore || b.peak >= minPeak ||
		b.attempts(lease(b.lease.Load())) > 0 || now-b.lastCall >= o.heartbeat()
}

// attempts returns how many requests needed a token since the last call.
func (b *Bucket) attempts(l lease) int {
	return b.held - l.tokens() + int(b.alone.Load()-b.lastAlone) + int(b.refused.Load()-b.lastRefused)
}

// leaseCall is one call; see lease.lua.
type leaseCall struct {
	bucket *Bucket
	settings
	number         uint64 // number of the call, higher than those of all earlier calls; set by the Fleet
	keep, giveBack int
	need, want     int
	used           float64 // requests a second
	share          float64 // the last share; 0 = there was no reply yet
	valid          time.Duration
}

// nextCall prepares the next call, and removes from the bucket the tokens that the call gives back to Redis. If the
// call fails, these tokens are lost, so the SSP gets fewer requests, never more.
func (b *Bucket) nextCall(now time.Duration, o *Options) leaseCall {
	s := b.settings.Load()
	a := leaseCall{bucket: b, settings: *s}
	if b.replicas.Load() > 0 {
		a.share = b.Share()
	}
	elapsed := float64(max(now-b.lastCall, o.LeaseInterval))
	intervals := elapsed / float64(o.LeaseInterval)
	alone, refused := b.alone.Load(), b.refused.Load()
	for {
		was := b.lease.Load()
		l := lease(was)
		spent := b.held - l.tokens()
		attempts := spent + int(alone-b.lastAlone) + int(refused-b.lastRefused)
		peak := max(float64(attempts)/intervals, b.peak*math.Pow(peakFade, intervals))
		a.need, a.want = b.target(s, peak)
		has := l.tokens()
		if !l.holds(now) {
			has = 0 // the tokens have expired with the lease
		}
		a.keep = min(has, a.want)
		a.giveBack = has - a.keep
		if b.lease.CompareAndSwap(was, was-uint64(l.tokens()-a.keep)) {
			sent := float64(spent+int(alone-b.lastAlone)) / (elapsed / 1e9)
			b.rate += (sent - b.rate) * (1 - math.Exp(-elapsed/float64(rateOver)))
			b.peak = peak
			break
		}
	}
	a.used = b.rate
	a.valid = leaseCalls * o.LeaseInterval
	if b.peak < minPeak {
		a.valid += o.heartbeat()
	}
	b.lastCall, b.lastSettings, b.held, b.lastAlone, b.lastRefused = now, s, a.keep, alone, refused
	b.needsMore = false // the reply may set it; without a reply, the back-off decides when to call
	return a
}

// target returns need, how many tokens the traffic needs until the call after next, and want, how many tokens to
// hold. need is at least 1, for the first request after a pause. want adds a reserve for growing traffic, which other
// replicas cannot use. So the reserve is half of an even part of the burst for a replica with traffic, and a quarter
// of it otherwise.
func (b *Bucket) target(s *settings, peak float64) (need, want int) {
	alive := max(int(b.replicas.Load()), 1)
	burst := max(s.burst, 2*alive) // as in lease.lua
	reserve := max(1, burst/(4*alive))
	limit := min(max(reserve, burst-reserve*(alive-1)), maxTokens)
	if peak >= minPeak {
		reserve = max(1, burst/(2*alive))
	}
	need = int(math.Ceil(1.25 * min(peak, maxTokens)))
	return min(max(1, need), limit), min(need+reserve, limit)
}

// leaseReply is Redis' reply to a leaseCall.
type leaseReply struct {
	granted int     // tokens
	share   float64 // requests a second
	alive   int     // number of replicas, including this one
}

// apply applies r, the reply to a, which arrived at the time received.
func (b *Bucket) apply(a *leaseCall, r leaseReply, received time.Duration) {
	b.needsMore = a.need > a.keep+r.granted
	b.held += r.granted
	b.replicas.Store(int64(r.alive))
	until := newLease(received+a.valid, 0).end()
	b.setShare(until, r.share, &a.settings)
	for {
		was := b.lease.Load()
		if b.lease.CompareAndSwap(was, uint64(newLease(until, lease(was).tokens()+r.granted))) {
			return
		}
	}
}
