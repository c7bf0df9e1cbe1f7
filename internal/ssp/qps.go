package ssp

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"adbuffer/internal/fleet"
	"adbuffer/internal/upstream"
)

// qps is a token bucket for everything that is sent to an SSP: requests, retries, hedges.
//
// Its state is one number: when the bucket will be full again (GCRA, the "virtual scheduling" of
// ATM's leaky bucket). A request moves that time by one interval. It is over the limit if the time
// would lie more than burst intervals ahead. That takes one compare-and-swap per request, and no
// lock.
//
// Times are since the SSP was made, in nanoseconds. They are floats, so that an interval of 142.86
// ns is not truncated to 142. It is safe for concurrent use. The zero value has no limit.
//
// If the limit is the fleet's, the tokens are those that this replica has leased, and the number is
// not used.
type qps struct {
	opts     QPSOptions
	made     time.Time     // when the SSP was made; times count from it
	interval float64       // between requests; 0 = no limit
	ahead    float64       // burst * interval
	full     atomic.Uint64 // math.Float64bits of when the bucket is full

	fleet       *fleet.Bucket // nil if the limit is this replica's own
	fleetOffset time.Duration // the fleet's bucket is older than the SSP by this, so its times are later

	limited *atomic.Uint64  // requests refused, or that a dry run would refuse; shared with successors
	refusal *upstream.Error // allocated once, so that a refusal costs no allocation
}

// init sets the limit of an SSP that was made at the given time.
func (q *qps) init(o QPSOptions, made time.Time) {
	q.opts, q.made = o, made
	if q.limited == nil {
		q.limited = new(atomic.Uint64)
	}
	if o.Limit <= 0 {
		return
	}
	q.opts.Burst = o.BurstInForce()
	q.interval = 1e9 / o.Limit
	q.ahead = float64(q.opts.Burst) * q.interval
	whose := ""
	if o.Fleet != nil {
		q.fleet, q.fleetOffset = o.Fleet, o.Fleet.Since(made)
		whose = " for all replicas"
	}
	q.refusal = &upstream.Error{
		Outcome: upstream.QPSLimit, Progress: upstream.NotSent, RetryAfter: time.Duration(min(q.interval, float64(time.Hour))),
		Detail: fmt.Sprintf("over %v requests a second, %d at once%s; see ssps[].qps", o.Limit, q.opts.Burst, whose),
	}
}

// admit refuses, and counts, a request for which there is no token now, so that it does not first
// wait for a place. It takes no token.
func (q *qps) admit(now time.Duration) *upstream.Error {
	if q.interval == 0 || q.opts.DryRun {
		return nil
	}
	if q.fleet != nil {
		if q.fleet.Has(now + q.fleetOffset) {
			return nil
		}
	} else if _, _, _, ok := q.next(now); ok {
		return nil
	}
	q.limited.Add(1)
	return q.refusal
}

// take takes the token of a request that is about to be sent. Without a token it refuses and counts
// the request; in a dry run it only counts.
func (q *qps) take(now time.Duration) *upstream.Error {
	if q.interval == 0 || q.taken(now) {
		return nil
	}
	q.limited.Add(1)
	if q.opts.DryRun {
		return nil
	}
	return q.refusal
}

// taken takes a token, if there is one.
func (q *qps) taken(now time.Duration) bool {
	if q.fleet != nil {
		return q.fleet.Take(now + q.fleetOffset)
	}
	for {
		was, next, at, ok := q.next(now)
		if !ok {
			return false
		}
		now = at
		if q.full.CompareAndSwap(was, next) {
			return true
		}
	}
}

// next returns the current q.full, its value with one token less, and whether there is a token at
// the time at: now, or later.
//
// now is when a request began, and other requests may have taken tokens since. For a request that
// was delayed for longer than the bucket takes to fill, an empty bucket looks like a full one. So
// next asks the clock before it reports no token.
func (q *qps) next(now time.Duration) (was, next uint64, at time.Duration, ok bool) {
	was = q.full.Load()
	if full, ok := q.takeOne(was, now); ok {
		return was, math.Float64bits(full), now, true
	}
	at = max(now, time.Since(q.made))
	full, ok := q.takeOne(was, at)
	return was, math.Float64bits(full), at, ok
}

// takeOne returns when the bucket is full after one token less, and whether there is a token.
func (q *qps) takeOne(was uint64, now time.Duration) (full float64, ok bool) {
	full = max(math.Float64frombits(was), float64(now)) + q.interval
	// A thousandth of an interval compensates rounding; without it, a full bucket could lack its
	// last token.
	return full, full-float64(now) <= q.ahead+q.interval/1000
}
