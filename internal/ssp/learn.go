package ssp

import (
	"time"

	"adbuffer/internal/pool"
	"adbuffer/internal/upstream"
)

// learn updates the learned state with the outcome of an admitted request.
func (s *SSP) learn(ex *upstream.Exchange, l *leg, o upstream.Outcome, err *upstream.Error) {
	t := &ex.Times
	now := s.since(t.Done)
	v := s.verdict(ex, l, o, err)
	if v != pool.Neutral {
		s.breaker.record(now, v == pool.Failure)
	}
	if s.opts.Adaptive.Enabled && (o == upstream.Deadline && v == pool.Failure || o <= upstream.Redirect && !l.paused) {
		s.adaptive.observe(now, t.Done.Sub(t.Acquired))
	}
}

// verdict returns the verdict of a request or an attempt on the SSP or the endpoint. A response
// that paused the SSP gives no verdict, because the pause is the consequence. Neither does a
// timeout if the client's deadline was too short to blame the SSP.
func (s *SSP) verdict(ex *upstream.Exchange, l *leg, o upstream.Outcome, err *upstream.Error) pool.Verdict {
	timedOut := o == upstream.Deadline && err.Progress != upstream.NotSent
	switch {
	case l.paused, timedOut && !s.hadEnoughTime(ex, l.start):
		return pool.Neutral
	case timedOut || failure(o):
		return pool.Failure
	case success(o):
		return pool.Success
	default:
		return pool.Neutral
	}
}

// failure reports whether an outcome counts as a failure of the SSP. Some timeouts count too, see
// verdict.
//
// A response that violates HTTP counts, since it is useless. An outcome caused by adbuffer (a full
// queue, a limit, a cancelled leg) is neither failure nor success.
func failure(o upstream.Outcome) bool {
	switch o {
	case upstream.ServerError, upstream.ConnectFailed, upstream.TLSFailed, upstream.ConnLost, upstream.BadResponse:
		return true
	default:
		return false
	}
}

// success reports whether an outcome shows that the SSP works. A response over adbuffer's limit
// does too. Shedding requests would not make it smaller, and might hide from operators which limit
// to set.
func success(o upstream.Outcome) bool {
	switch o {
	case upstream.Fill, upstream.NoBid, upstream.Redirect, upstream.ClientError, upstream.ResponseTooLarge:
		return true
	default:
		return false
	}
}

// hadEnoughTime reports whether the SSP had its usual time, so that a timeout is its failure. The
// wait for a place is included: the pool of a slow SSP is full, and the breaker must see that. A
// twentieth may be missing for the time before the leg began.
func (s *SSP) hadEnoughTime(ex *upstream.Exchange, start time.Time) bool {
	return ex.Deadline.Sub(start) >= s.blameAfter-s.blameAfter/20
}
