package ssp

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"adbuffer/internal/machine/rates"
)

// quantile tracks a quantile of an SSP's latencies in the last 30 to 60 s, within a sixteenth. The
// first observation after a quarter of a second computes the quantile again.
//
// The requests of one client must not move the quantile for all clients. So it leaves out the quarter
// of the groups of clients (rates.Group) whose latencies move it most, in either direction. If the
// other groups made too few observations, as many of those groups' observations count as are missing.
// With a single group nothing is left out.
//
// Times are since the SSP was made. It is safe for concurrent use.
type quantile struct {
	first     sync.Once        // the first observation makes latencies: without hedging it has no memory
	latencies *latencies       // all observations
	value     atomic.Int64     // ns; 0 = too few observations
	refresh   atomic.Int64     // ns; when the value is computed again
	mu        sync.Mutex       // held during the computation; guards the fields below
	forgotten *latencyReadings // the observations before the last 30 to 60 s
	recent    *latencyReadings // the observations until the current half minute began
	counted   *latencyReadings // memory for the computation: the observations after forgotten
	forgetAt  time.Duration    // when the half minute ends
	q         float64
	need      float64 // observations needed for a value
}

const (
	quantileSpan    = 30 * time.Second
	quantileRefresh = 250 * time.Millisecond
	quantileSteps   = 16 // buckets for each power of two
	// latencyOctaves is the number of powers of two from 16 µs to more than the longest deadline, ten
	// minutes.
	latencyOctaves = 27
	latencyBuckets = 1 + quantileSteps*(1+latencyOctaves)
)

// latencies counts latencies by the client's group and by bucket, in 29 KB. The counts may overflow: only
// their differences are used.
type latencies [rates.ClientGroups][latencyBuckets]atomic.Uint32

// latencyReadings are the counts of latencies at some moment.
type latencyReadings [rates.ClientGroups][latencyBuckets]uint32

// latencyBucket returns the bucket of a latency: up to 16 µs by the microsecond, then sixteenths of
// powers of two.
func latencyBucket(latency time.Duration) int {
	us := max(1, uint64(max(0, latency)+time.Microsecond-1)/uint64(time.Microsecond)) // the value 0 means unknown
	if us <= quantileSteps {
		return int(us)
	}
	octave := bits.Len64(us-1) - 5
	return min(1+quantileSteps*octave+int((us-1)>>octave), latencyBuckets-1)
}

// latencyBound returns the highest latency in a bucket.
func latencyBound(bucket int) time.Duration {
	if bucket <= quantileSteps {
		return time.Duration(bucket) * time.Microsecond
	}
	octave, part := (bucket-1)/quantileSteps-1, (bucket-1)%quantileSteps
	return time.Duration(quantileSteps+part+1) << octave * time.Microsecond
}

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
	q.need = math.Ceil(10 / max(1-of, 0.001))
}

// observe records the latency of an attempt for a client of group g. A cancelled attempt, whose
// latency is a lower bound, still counts correctly if it was above the quantile.
func (q *quantile) observe(now time.Duration, g rates.Group, latency time.Duration) {
	q.first.Do(func() {
		q.latencies = new(latencies)
		q.forgotten, q.recent, q.counted = new(latencyReadings), new(latencyReadings), new(latencyReadings)
	})
	q.latencies[g][latencyBucket(latency)].Add(1)
	if int64(now) >= q.refresh.Load() && q.mu.TryLock() {
		defer q.mu.Unlock()
		q.refreshLocked(now)
	}
}

// get returns the quantile, 0 after too few observations.
func (q *quantile) get() time.Duration { return time.Duration(q.value.Load()) }

func (q *quantile) refreshLocked(now time.Duration) {
	q.refresh.Store(int64(now + quantileRefresh))
	q.latencies.read(q.counted)
	if now >= q.forgetAt {
		q.forgotten, q.recent = q.recent, q.forgotten
		*q.recent = *q.counted
		if now >= q.forgetAt+quantileSpan { // unused for long: the other half is old too
			*q.forgotten = *q.recent
		}
		q.forgetAt = now + quantileSpan
	}
	for g := range q.counted {
		for i := range q.counted[g] {
			q.counted[g][i] -= q.forgotten[g][i]
		}
	}
	q.value.Store(int64(q.counted.quantile(q.q, q.need)))
}

func (l *latencies) read(to *latencyReadings) {
	for g := range l {
		for i := range l[g] {
			to[g][i] = l[g][i].Load()
		}
	}
}

// quantile returns the q-quantile of the counts, without the groups that move it most. It is 0 if there
// are less than need observations.
func (l *latencyReadings) quantile(q, need float64) time.Duration {
	var counted latencyCounts
	active := 0
	for g := range l {
		before := counted.n
		counted.add(&l[g], 1)
		if counted.n > before {
			active++
		}
	}
	if counted.n < need {
		return 0
	}
	if active > 1 {
		at := counted.bucketOf(q)
		var moves [rates.ClientGroups]float64 // how far a group's observations above the quantile are from their share
		for g := range l {
			for i, n := range l[g] {
				if i > at {
					moves[g] += q * float64(n)
				} else {
					moves[g] -= (1 - q) * float64(n)
				}
			}
			moves[g] = math.Abs(moves[g])
		}
		var excluded latencyCounts
		for range (active + 3) / 4 {
			most := 0
			for g := range moves {
				if moves[g] > moves[most] {
					most = g
				}
			}
			counted.add(&l[most], -1)
			excluded.add(&l[most], 1)
			moves[most] = -1
		}
		if missing := need - counted.n; missing > 0 {
			counted.addAll(&excluded, missing/excluded.n)
		}
	}
	return latencyBound(counted.bucketOf(q))
}

// latencyCounts are observations by bucket.
type latencyCounts struct {
	n        float64 // sum of byBucket
	byBucket [latencyBuckets]float64
}

// add adds share times the observations of a group.
func (c *latencyCounts) add(group *[latencyBuckets]uint32, share float64) {
	for i, n := range group {
		c.byBucket[i] += share * float64(n)
		c.n += share * float64(n)
	}
}

// addAll adds share times the observations of other.
func (c *latencyCounts) addAll(other *latencyCounts, share float64) {
	for i, n := range other.byBucket {
		c.byBucket[i] += share * n
	}
	c.n += share * other.n
}

// bucketOf returns the bucket of the q-quantile.
func (c *latencyCounts) bucketOf(q float64) int {
	n := 0.0
	for i := range c.byBucket {
		n += c.byBucket[i]
		if n >= q*c.n*(1-1e-12) { // shares of counts are not exact
			return i
		}
	}
	return latencyBuckets - 1
}
