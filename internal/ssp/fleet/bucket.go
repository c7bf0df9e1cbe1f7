package fleet

import (
	"math"
	"sync/atomic"
	"time"

	"adbuffer/internal/machine/rates"
)

// Bucket holds this replica's part of an SSP's tokens. Take never blocks, never calls Redis and never allocates. A
// Bucket is safe for concurrent use.
//
//	leased  <->  alone
//
// Leased: tokens come from Redis in batches, and each call renews the lease. Alone: no call has renewed the lease in
// time, so tokens come at the rate of the last share until a call succeeds. A new Bucket is alone. Requests read the
// end of the lease together with its tokens, so neither a hanging Redis nor a stalled goroutine can keep a Bucket in
// the wrong state.
type Bucket struct {
	name  string
	epoch time.Time // the zero time of the times below

	lease   atomic.Uint64 // a lease: its end and its tokens
	pace    rates.Bucket  // tokens at the rate of the last share; used after the end of the lease
	alone   atomic.Uint64 // number of tokens taken from pace
	refused atomic.Uint64

	share    atomic.Uint64 // math.Float64bits, tokens a second
	replicas atomic.Int64  // by Redis' last reply; 0 before the first
	failures atomic.Uint64 // calls

	settings      atomic.Pointer[settings]
	firstCallDone chan struct{} // closed after the first call
	callState                   // used only by the goroutine that calls Redis
}

// settings is an SSP's limit, as it is sent to Redis. A reload replaces it.
type settings struct {
	limit float64 // tokens a second, above 0
	burst int     // at least 1
}

// lease holds the end of a lease and its tokens. The low tokenBits bits are the tokens. The bits above them are the
// end, in steps of 2^20 ns (1.05 ms) since Bucket.epoch.
type lease uint64

const (
	tokenBits = 24
	stepBits  = 20
	maxTokens = 1<<tokenBits - 1
)

func newLease(until time.Duration, tokens int) lease {
	return lease(max(0, until)>>stepBits<<tokenBits) | lease(min(tokens, maxTokens))
}

func (l lease) end() time.Duration { return time.Duration(l>>tokenBits) << stepBits }

func (l lease) tokens() int { return int(l & maxTokens) }

func (l lease) holds(now time.Duration) bool { return now < l.end() }

func newBucket(name string, s settings, expectedReplicas int) *Bucket {
	b := &Bucket{name: name, epoch: time.Now(), firstCallDone: make(chan struct{})}
	b.settings.Store(&s)
	b.setShare(0, s.limit/float64(expectedReplicas), &s)
	return b
}

// setShare sets the rate, in tokens a second, that applies after the lease ends at end.
func (b *Bucket) setShare(end time.Duration, share float64, s *settings) {
	b.share.Store(math.Float64bits(share))
	burst := max(1, float64(s.burst)*share/s.limit)
	b.pace.Start(end, share, burst, burst)
}

// change changes the limit. Until Redis' next reply, the share is the same fraction of the limit as before.
func (b *Bucket) change(s settings) {
	old := b.settings.Swap(&s)
	end := max(b.Since(time.Now()), lease(b.lease.Load()).end())
	b.setShare(end, b.Share()*s.limit/old.limit, &s)
}

func (b *Bucket) markFirstCall() {
	select {
	case <-b.firstCallDone:
	default:
		close(b.firstCallDone)
	}
}

// Since returns t as a time since the bucket was made.
func (b *Bucket) Since(t time.Time) time.Duration { return t.Sub(b.epoch) }

// Take takes the token of one request that is about to be sent, or returns false if no token is
// free. now is a result of Since.
func (b *Bucket) Take(now time.Duration) bool {
	for {
		was := b.lease.Load()
		switch l := lease(was); {
		case !l.holds(now):
			if b.pace.Take(now) {
				b.alone.Add(1)
				return true
			}
			b.refused.Add(1)
			return false
		case l.tokens() == 0:
			b.refused.Add(1)
			return false
		}
		if b.lease.CompareAndSwap(was, was-1) {
			return true
		}
	}
}

// Has reports whether a token is free. If not, the request is counted as demand for tokens.
func (b *Bucket) Has(now time.Duration) bool {
	l := lease(b.lease.Load())
	if l.holds(now) && l.tokens() > 0 || !l.holds(now) && b.pace.Has(now) {
		return true
	}
	b.refused.Add(1)
	return false
}

// Connected reports whether a lease is valid. It is false while the replica continues alone.
func (b *Bucket) Connected(now time.Duration) bool { return lease(b.lease.Load()).holds(now) }

// Share returns how many requests a second this replica may send while it is alone.
func (b *Bucket) Share() float64 { return math.Float64frombits(b.share.Load()) }
