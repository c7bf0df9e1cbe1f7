package ssp

import (
	"sync/atomic"
	"time"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/wire/exchange"
)

// qps limits all requests that are sent to an SSP: first attempts, retries, hedges. It is safe for
// concurrent use. The zero value has no limit. Times are since the SSP was made.
//
// If all replicas share the limit, the tokens are those that this replica has leased, and bucket is
// not used.
type qps struct {
	opts   QPSOptions
	made   time.Time // when the SSP was made; times count from it
	bucket rates.Bucket

	fleetOffset time.Duration // age of opts.Fleet minus age of the SSP; added to times for it

	limited *atomic.Uint64  // requests refused, or that a dry run would refuse; shared with successors
	refusal *exchange.Error // allocated once, so that a refusal costs no allocation
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
	q.bucket.Start(0, o.Limit, float64(q.opts.Burst), 0)
	whose := ""
	if o.Fleet != nil {
		q.fleetOffset = o.Fleet.Since(made)
		whose = " for all replicas"
	}
	q.refusal = exchange.Errorf(exchange.QPSLimit, exchange.NotSent, "over %v requests a second, %d at once%s; see ssps[].qps", o.Limit, q.opts.Burst, whose)
	q.refusal.RetryAfter = time.Duration(min(1e9/o.Limit, float64(time.Hour)))
}

// refuse refuses, and counts, a request for which no token is free now, so that it does not first
// wait for a place. It takes no token.
func (q *qps) refuse(now time.Duration) *exchange.Error {
	if q.opts.Limit <= 0 || q.opts.DryRun || q.has(now) {
		return nil
	}
	q.limited.Add(1)
	return q.refusal
}

// take takes the token of a request that is about to be sent. Without a token it refuses and counts
// the request; in a dry run it only counts.
func (q *qps) take(now time.Duration) *exchange.Error {
	if q.opts.Limit <= 0 || q.taken(now) {
		return nil
	}
	q.limited.Add(1)
	if q.opts.DryRun {
		return nil
	}
	return q.refusal
}

// has reports whether a token is free.
func (q *qps) has(now time.Duration) bool {
	if f := q.opts.Fleet; f != nil {
		return f.Has(now + q.fleetOffset)
	}
	return q.bucket.Has(now) || q.bucket.Has(q.later(now))
}

// left returns how many tokens are free. For a limit that replicas share it is always half of the burst: how many of the
// leased tokens are left depends on how long ago the lease was renewed.
func (q *qps) left(now time.Duration) float64 {
	if q.opts.Fleet != nil {
		return float64(q.opts.Burst) / 2
	}
	return float64(q.opts.Burst) - q.bucket.Deficit(now)
}

// alone returns the share of the limit that this replica uses without Redis, or 0 if it does not.
func (q *qps) alone(now time.Duration) float64 {
	if f := q.opts.Fleet; f != nil && !f.Connected(now+q.fleetOffset) {
		return f.Share()
	}
	return 0
}

// taken takes a token and returns true, if one is free.
func (q *qps) taken(now time.Duration) bool {
	if f := q.opts.Fleet; f != nil {
		return f.Take(now + q.fleetOffset)
	}
	return q.bucket.Take(now) || q.bucket.Take(q.later(now))
}

// later reads the clock. now is when a request began, and other requests may have taken tokens
// since. To a request with a delay longer than the time to fill the bucket, an empty bucket would
// look full.
func (q *qps) later(now time.Duration) time.Duration { return max(now, time.Since(q.made)) }
