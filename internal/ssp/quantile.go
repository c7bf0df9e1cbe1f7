package ssp

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// quantile tracks a quantile of an SSP's latencies in the last 30 to 60 s, within a sixteenth. An
// observation is one atomic addition. The first observation after a quarter of a second computes
// the quantile again.
//
// Times are since the SSP was made. It is safe for concurrent use. An observation at the exact
// moment when the oldest ones are dropped may be dropped with them.
type quantile struct {
	counts   [2][quantileBuckets]atomic.Uint32 // the current half minute, and the one before
	current  atomic.Uint32                     // index of the current half
	value    atomic.Int64                      // ns; 0 = too few observations
	refresh  atomic.Int64                      // ns; when the value is computed again
	mu       sync.Mutex                        // held during the computation; guards the fields below
	forgetAt time.Duration                     // when the older half is dropped
	q        float64
	need     uint32 // observations needed for a value
}

const (
	quantileSpan    = 30 * time.Second
	quantileRefresh = 250 * time.Millisecond
	quantileSteps   = 16 // buckets for each power of two
	quantileBuckets = 28 * quantileSteps
)

func (q *quantile) init(of float64) {
	q.set(of)
	q.forgetAt = quantileSpan
	q.refresh.Store(int64(quantileRefresh))
}

// set changes the quantile, from the next refresh on.
func (q *quantile) set(of float64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.q = of
	// Enough for ten observations beyond the quantile.
	q.need = uint32(math.Ceil(10 / max(1-of, 0.001)))
}

// observe records a latency. A cancelled attempt, whose latency is a lower bound, still counts
// correctly if it was above the quantile.
func (q *quantile) observe(now, latency time.Duration) {
	q.counts[q.current.Load()&1][quantileBucket(latency)].Add(1)
	if int64(now) >= q.refresh.Load() && q.mu.TryLock() {
		defer q.mu.Unlock()
		q.refreshLocked(now)
	}
}

// get returns the quantile, 0 after too few observations.
func (q *quantile) get() time.Duration { return time.Duration(q.value.Load()) }

func (q *quantile) refreshLocked(now time.Duration) {
	q.refresh.Store(int64(now + quantileRefresh))
	if now >= q.forgetAt {
		forget := q.current.Load() ^ 1
		for i := range q.counts[forget] {
			q.counts[forget][i].Store(0)
		}
		if now >= q.forgetAt+quantileSpan { // unused for long: the other half is old too
			for i := range q.counts[forget^1] {
				q.counts[forget^1][i].Store(0)
			}
		}
		q.current.Store(forget)
		q.forgetAt = now + quantileSpan
	}
	var both [quantileBuckets]uint32
	var n uint32
	for i := range both {
		both[i] = q.counts[0][i].Load() + q.counts[1][i].Load()
		n += both[i]
	}
	if n < q.need {
		q.value.Store(0)
		return
	}
	rank := uint32(math.Ceil(q.q * float64(n)))
	var below uint32
	for i, c := range both {
		below += c
		if below >= rank {
			q.value.Store(int64(quantileBound(i)))
			return
		}
	}
}

// quantileBucket returns the bucket of d: linear in microseconds up to 16, then sixteen per power
// of two.
func quantileBucket(d time.Duration) int {
	us := uint64(max(d, 0) / time.Microsecond)
	if us < quantileSteps {
		return int(us)
	}
	shift := bits.Len64(us) - bits.Len64(quantileSteps)
	return min(shift*quantileSteps+int(us>>shift), quantileBuckets-1)
}

func quantileBound(bucket int) time.Duration {
	if bucket < quantileSteps {
		return time.Duration(bucket+1) * time.Microsecond
	}
	shift := bucket/quantileSteps - 1
	return time.Duration(quantileSteps+bucket%quantileSteps+1) << shift * time.Microsecond
}
