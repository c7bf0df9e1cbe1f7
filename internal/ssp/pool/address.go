package pool

import (
	"time"

	"adbuffer/internal/machine/rates"
)

// addressState records the latest dials to one address, or the latest look-ups. Guarded by Pool.mu.
//
//	healthy ── first failure ──▶ on trial ◀──▶ pausing, until the time is over
//	   ▲                            │
//	   └───── a dial succeeds ──────┘
//
// On trial, the pool dials the address once at a time. Each failure after the first one begins a pause, which is
// twice as long as the previous pause.
type addressState struct {
	dialing       int       // dials under way
	failures      int       // dials in a row that failed
	retriedAtOnce bool      // the dial after the last failure starts at once, since requests wait for it
	until         time.Time // no dial starts earlier, because dials failed
	unprocessed   int       // connections in a row on which the SSP processed no request
	spaced        time.Time // no dial starts earlier, because of unprocessed
}

const (
	// unspaced is how many connections in a row may end unprocessed before the pool spaces its dials.
	unspaced = 3
	// firstSpace is the first space between two dials. Each further one is twice as long.
	firstSpace = time.Millisecond
)

// healthy reports whether the pool may dial the address without a limit. A nil state means that the
// address was never dialled.
func (s *addressState) healthy(now time.Time) bool {
	return s == nil || s.failures == 0 && !s.spaced.After(now)
}

// pausedUntil returns the time before which the pool does not dial an unhealthy address.
func (s *addressState) pausedUntil() time.Time {
	if s.spaced.After(s.until) {
		return s.spaced
	}
	return s.until
}

// countFailure records a failed dial. failures is the value of s.failures when the dial began: dials that
// began together fail together, and count as one failure.
//
// again says that requests wait for one more dial. It starts at once, as after a first failure, which may be an
// accident:
//
//	failures  again  retriedAtOnce │ failures  retriedAtOnce  next dial
//	0         no     no            │ 1         no             at once
//	0         yes    no            │ 1         yes            at once
//	n ≥ 1     no     either        │ n+1       no             after a pause
//	n ≥ 1     yes    no            │ n         yes            at once
//	n ≥ 1     yes    yes           │ n+1       no             after a pause
func (s *addressState) countFailure(failures int, again bool, now time.Time, o *Options) {
	if failures != s.failures {
		return
	}
	s.retriedAtOnce = again && !s.retriedAtOnce
	if s.retriedAtOnce && s.failures > 0 {
		return
	}
	s.failures++
	if s.failures > 1 {
		// ±20 %, so that several adbuffers do not dial at the same moments; at most BackoffMax.
		s.until = now.Add(rates.Jitter(doubled(o.BackoffMin, s.failures-2, o.BackoffMax), 0.2))
	}
}

// space sets the time of the next dial if the SSP processed no request on the last connections.
func (s *addressState) space(now time.Time, o *Options) {
	if n := s.unprocessed - unspaced; n >= 0 {
		s.spaced = now.Add(rates.Jitter(doubled(firstSpace, n, o.BackoffMax), 0.2))
	}
}

// doubled returns lo doubled n times, but at most 5/6 of hi, so that jitter does not raise it above
// hi.
func doubled(lo time.Duration, n int, hi time.Duration) time.Duration {
	if lo < hi>>n {
		return min(lo<<n, hi/6*5)
	}
	return hi / 6 * 5
}
