package ssp

import (
	"time"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/wire/exchange"
)

// Snapshot is an SSP at one moment, for the admin page. Counts cover the time since start.
type Snapshot struct {
	Outcomes map[string]uint64 `json:"outcomes"`           // only outcomes that occurred, by name
	Last4xx  int               `json:"last_4xx,omitempty"` // the last status from 400 to 499
	// RefusedCoding is compress.coding if the SSP has refused all requests with this coding.
	RefusedCoding Coding `json:"refused_coding,omitempty"`

	Sent    uint64            `json:"sent"`    // requests sent, including retries and hedges
	Retries map[string]uint64 `json:"retries"` // retries and hedges by kind, all part of Sent

	// P50Seconds and P99Seconds are upper bounds of the median and the 99th percentile of request
	// durations since start. They are 0 before the first request.
	P50Seconds float64 `json:"p50_seconds"`
	P99Seconds float64 `json:"p99_seconds"`

	InFlight         int `json:"in_flight"`
	ConcurrencyLimit int `json:"concurrency_limit"` // max_in_flight; 0 = none

	BufferedBytes      int64 `json:"buffered_bytes"` // of requests and responses
	BufferedBytesLimit int64 `json:"buffered_bytes_limit"`

	BreakerFailures  uint64  `json:"breaker_failures"` // in the window
	BreakerRequests  uint64  `json:"breaker_requests"`
	BreakerShedRatio float64 `json:"breaker_shed_ratio"`
	BreakerShed      uint64  `json:"breaker_shed"`
	BreakerWouldShed uint64  `json:"breaker_would_shed"` // in a dry run

	QPSLimit   float64 `json:"qps_limit"` // 0 = none
	QPSLimited uint64  `json:"qps_limited"`
	// QPSAlone is how many requests a second this replica may send while it is without Redis. It is 0 if the
	// replica leases tokens from Redis, or shares no limit.
	QPSAlone float64 `json:"qps_alone,omitempty"`

	BackoffSeconds float64 `json:"backoff_seconds"` // remaining time of the pause that the SSP asked for
	// RetryAfterPaused and RetryAfterIgnored count responses that asked for a pause, by whether a
	// pause followed.
	RetryAfterPaused  uint64 `json:"retry_after_paused"`
	RetryAfterIgnored uint64 `json:"retry_after_ignored"`
	// HedgeAfterSeconds is the time after which an attempt is late. It is 0 if hedging is off, or
	// has too few observations.
	HedgeAfterSeconds float64 `json:"hedge_after_seconds"`
}

// Latency returns the times of all requests since start.
func (s *SSP) Latency() *metrics.Histogram { return s.stats.duration }

// HoldsBack reports whether the breaker, a pause that the SSP asked for, or an operator keeps requests away, so that the
// pool must not judge its size by its load. The QPS limit does not count: it lasts, so the load that it lets through is
// the load for which the pool needs its places.
func (s *SSP) HoldsBack(at time.Time) bool {
	now := s.since(at)
	sheds := !s.opts.Breaker.DryRun && s.breaker.shedRatio(now) > 0
	return sheds || s.backoff.left(now) > 0 || s.Refusing()
}

// Snapshot returns the current state of the SSP.
func (s *SSP) Snapshot() Snapshot {
	now := s.since(time.Now())
	snap := Snapshot{
		Outcomes: make(map[string]uint64), Last4xx: int(s.stats.codes.last4xx.Load()), RefusedCoding: s.refusedCoding(), Sent: s.stats.sent.Load(), Retries: make(map[string]uint64),
		P50Seconds: s.stats.duration.Quantile(0.5), P99Seconds: s.stats.duration.Quantile(0.99),
		InFlight: s.inFlight.Now(), ConcurrencyLimit: s.inFlight.Limit(),
		BufferedBytes: s.buffered.Used(), BufferedBytesLimit: s.buffered.Limit(),
		BreakerShedRatio: s.breaker.shedRatio(now), BreakerShed: s.breaker.shed.Load(), BreakerWouldShed: s.breaker.wouldShed.Load(),
		QPSLimit: s.opts.QPS.Limit, QPSLimited: s.qps.limited.Load(), QPSAlone: s.qps.alone(now),
		BackoffSeconds: s.backoff.left(now).Seconds(), RetryAfterPaused: s.retryAfters.paused.Load(), RetryAfterIgnored: s.retryAfters.ignored.Load(),
	}
	snap.BreakerRequests, snap.BreakerFailures = s.breaker.Tally()
	if s.opts.Hedge.Enabled {
		snap.HedgeAfterSeconds = s.lateAfter.get().Seconds()
	}
	for o := range exchange.Outcomes {
		if n := s.stats.outcomes[o].Load(); n > 0 {
			snap.Outcomes[o.String()] = n
		}
	}
	for k, kind := range retryKindNames {
		snap.Retries[kind] = s.stats.retries[k].Load()
	}
	return snap
}
