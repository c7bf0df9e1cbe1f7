package fleet

import (
	"adbuffer/internal/tokenbucket"
	"math"
	"sync/atomic"
	"time"
)

// Bucket is this replica's part of an SSP's tokens. Take never waits, never asks
// Redis and allocates nothing. A Bucket is safe for concurrent use.
//
//	leased  <->  alone
//
// leased: tokens come from Redis, a batch at a time; each call renews the lease.
// alone: no call has renewed it in time, so tokens come at the pace of the last
// share, until one does. It begins alone. The lease's end is part of the word
// that requests read, so a Redis that hangs, or a stalled goroutine, cannot hold
// a Bucket in the wrong state.
type Bucket struct {
	name string
	made time.Time // what the times below count from

	lease   atomic.Uint64      // lease: until when, and tokens left
	pace    tokenbucket.Bucket // at the last share; used after the lease has ended
	alone   atomic.Uint64      // sent at that pace
	refused atomic.Uint64

	// For the metrics.
	share    atomic.Uint64 // math.Float64bits, tokens a second
	replicas atomic.Int64  // as last told; 0 before
	leased   atomic.Uint64 // tokens
	failures atomic.Uint64 // calls

	settings atomic.Pointer[settings]
	tried    chan struct{} // closed after the first call
	caller                 // only for the goroutine that calls Redis
}

// settings are what Redis is told of an SSP's limit; they may change.
type settings struct {
	limit float64 // tokens a second, above 0
	burst int     // at least 1
}

// lease is until when a lease holds, in steps of 2^20 ns (1.05 ms) since the
// bucket was made, above tokenBits bits of tokens.
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
	b := &Bucket{name: name, made: time.Now(), tried: make(chan struct{})}
	b.settings.Store(&s)
	b.setShare(0, s.limit/float64(expectedReplicas), &s)
	return b
}

// setShare sets what is sent a second once the lease has run out, which it does
// at the time given.
func (b *Bucket) setShare(end time.Duration, share float64, s *settings) {
	b.share.Store(math.Float64bits(share))
	burst := max(1, float64(s.burst)*share/s.limit)
	b.pace.Start(end, share, burst, burst)
}

// change sets another limit. Until Redis has said more, the share of it is the
// same part as before.
func (b *Bucket) change(s settings) {
	old := b.settings.Swap(&s)
	end := max(b.Since(time.Now()), lease(b.lease.Load()).end())
	b.setShare(end, b.Share()*s.limit/old.limit, &s)
}

func (b *Bucket) markTried() {
	select {
	case <-b.tried:
	default:
		close(b.tried)
	}
}

// Since is t as the bucket counts time.
func (b *Bucket) Since(t time.Time) time.Duration { return t.Sub(b.made) }

// Take takes the token of one request that is about to be sent, or returns false
// where there is none. now is as Since counts.
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

// Has reports whether Take would find a token. Where not, it counts as demand.
func (b *Bucket) Has(now time.Duration) bool {
	l := lease(b.lease.Load())
	if l.holds(now) && l.tokens() > 0 || !l.holds(now) && b.pace.Has(now) {
		return true
	}
	b.refused.Add(1)
	return false
}

// Connected reports whether a lease holds: false while the replica goes on alone.
func (b *Bucket) Connected(now time.Duration) bool { return lease(b.lease.Load()).holds(now) }

// Share returns how many requests a second this replica may send on its own.
func (b *Bucket) Share() float64 { return math.Float64frombits(b.share.Load()) }
