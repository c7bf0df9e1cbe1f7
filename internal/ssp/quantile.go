package ssp

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"adbuffer/internal/metrics"
)

// quantile tracks a quantile of an SSP's latencies in the last 30 to 60 s, within a sixteenth. The
// first observation after a quarter of a second computes the quantile again.
//
// Times are since the SSP was made. It is safe for concurrent use.
type quantile struct {
	first     sync.Once // the first observation makes latencies: without hedging it has no memory
	latencies *metrics.Histogram
	value     atomic.Int64   // ns; 0 = too few observations
	refresh   atomic.Int64   // ns; when the value is computed again
	mu        sync.Mutex     // held during the computation; guards the fields below
	forgotten metrics.Counts // the observations before the last 30 to 60 s
	recent    metrics.Counts // the observations until the current half minute began
	forgetAt  time.Duration  // when the half minute ends
	q         float64
	need      uint64 // observations needed for a value
}

const (
	quantileSpan    = 30 * time.Second
	quantileRefresh = 250 * time.Millisecond
	quantileSteps   = 16 // buckets for each power of two
)

// latencyBounds are 16 µs times powers of two, up to more than the longest deadline, ten minutes.
var latencyBounds = func() (all []time.Duration) {
	for d := 16 * time.Microsecond; d < 20*time.Minute; d *= 2 {
		all = append(all, d)
	}
	return all
}()

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
	q.need = uint64(math.Ceil(10 / max(1-of, 0.001)))
}

// observe records a latency. A cancelled attempt, whose latency is a lower bound, still counts
// correctly if it was above the quantile.
func (q *quantile) observe(now, latency time.Duration) {
	q.first.Do(func() {
		q.latencies = metrics.DurationsInParts(quantileSteps, latencyBounds...)
		q.forgotten = q.latencies.Counts()
		q.recent = q.forgotten
	})
	q.latencies.ObserveDuration(latency)
	if int64(now) >= q.refresh.Load() && q.mu.TryLock() {
		defer q.mu.Unlock()
		q.refreshLocked(now)
	}
}

// get returns the quantile, 0 after too few observations.
func (q *quantile) get() time.Duration { return time.Duration(q.value.Load()) }

func (q *quantile) refreshLocked(now time.Duration) {
	q.refresh.Store(int64(now + quantileRefresh))
	all := q.latencies.Counts()
	if now >= q.forgetAt {
		q.forgotten, q.recent = q.recent, all
		if now >= q.forgetAt+quantileSpan { // unused for long: the other half is old too
			q.forgotten = all
		}
		q.forgetAt = now + quantileSpan
	}
	counted := all.Sub(q.forgotten)
	n := uint64(0)
	for _, c := range counted {
		n += c
	}
	value := 0.0
	if n >= q.need {
		value = q.latencies.QuantileOf(q.q, counted)
	}
	q.value.Store(int64(math.Round(value * float64(time.Second))))
}
