package fleet

import (
	"math"
	"time"
)

// callState holds what a Bucket remembers between two calls of Redis.
type callState struct {
	lastCall      time.Duration // time of the last call
	lastSettings  *settings     // settings of the last call; nil before the first
	held          int           // tokens after the last call; requests have taken some since
	aloneBefore   uint64        // alone at that time
	refusedBefore uint64        // refused at that time
	keyFailing    bool          // its key cannot be used, and the log has reported it
	needsMore     bool          // it got fewer tokens than its traffic needs
	peak          float64       // most requests in a recent lease interval
	rate          float64       // requests sent a second, averaged over rateOver
}

const (
	// leaseCalls is how many calls may fail or be late before a lease ends.
	leaseCalls = 8
	// peakFade is the factor by which a peak shrinks in each lease interval.
	peakFade = 0.8
	// A peak below quiet needs no reserve.
	quiet    = 0.5
	rateOver = 2 * time.Second
)

// due reports whether to call Redis: requests want tokens or wanted them recently, or a heartbeat
// is due.
func (b *Bucket) due(now time.Duration, o *Options) bool {
	return b.lastSettings != b.settings.Load() || b.needsMore || b.peak >= quiet ||
		b.attempts(lease(b.lease.Load())) > 0 || now-b.lastCall >= o.heartbeat()
}

// attempts returns how many requests needed a token since the last call.
func (b *Bucket) attempts(l lease) int {
	return b.held - l.tokens() + int(b.alone.Load()-b.aloneBefore) + int(b.refused.Load()-b.refusedBefore)
}

// leaseCall is one call; see lease.lua.
type leaseCall struct {
	bucket *Bucket
	settings
	number     uint64 // of the call, higher than of all earlier calls; set by the Fleet
	keep, back int
	need, want int
	used       float64 // requests a second
	share      float64 // 0 = no reply yet
	valid      time.Duration
}

// nextCall prepares the next call, and takes the tokens that it returns to Redis out of the bucket.
// If the call fails, these tokens are lost: the SSP gets fewer requests, never more.
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
		attempts := spent + int(alone-b.aloneBefore) + int(refused-b.refusedBefore)
		peak := max(float64(attempts)/intervals, b.peak*math.Pow(peakFade, intervals))
		a.need, a.want = b.target(s, peak)
		has := l.tokens()
		if !l.holds(now) {
			has = 0 // the tokens ended with the lease
		}
		a.keep = min(has, a.want)
		a.back = has - a.keep
		if b.lease.CompareAndSwap(was, was-uint64(l.tokens()-a.keep)) {
			sent := float64(spent+int(alone-b.aloneBefore)) / (elapsed / 1e9)
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
	b.lastCall, b.lastSettings, b.held, b.aloneBefore, b.refusedBefore = now, s, a.keep, alone, refused
	b.needsMore = false // the reply may set it; without a reply, the back-off decides when to call
	return a
}

// target returns how many tokens the traffic needs until the call after next, at least one for the
// request that ends a pause. It also returns how many to hold, including a reserve for growing
// traffic. Other replicas cannot use that reserve. So a replica with traffic holds half of an even
// part of the burst, and one without a quarter.
func (b *Bucket) target(s *settings, peak float64) (need, want int) {
	alive := max(int(b.replicas.Load()), 1)
	burst := max(s.burst, 2*alive) // as in lease.lua
	reserve := max(1, burst/(4*alive))
	most := min(max(reserve, burst-reserve*(alive-1)), maxTokens)
	if peak >= quiet {
		reserve = max(1, burst/(2*alive))
	}
	need = int(math.Ceil(1.25 * min(peak, maxTokens)))
	return min(max(1, need), most), min(need+reserve, most)
}

// leaseReply is Redis' reply to a leaseCall.
type leaseReply struct {
	granted int     // tokens
	share   float64 // requests a second
	alive   int     // replicas, including this one
}

// apply applies the reply to a, which arrived at received.
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
