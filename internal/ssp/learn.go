package ssp

import (
	"time"

	"adbuffer/internal/upstream"
)

// learn updates the learned state with the outcome of an admitted request. It ignores a failure at
// an endpoint that is out while others serve: later requests go to the others. See breaker.
func (s *SSP) learn(ex *upstream.Exchange, l *leg, o upstream.Outcome, err *upstream.Error) {
	t := &ex.Times
	now := s.since(t.Done)
	v := s.resultOf(ex, l, o, err)
	if l.aside && v == upstream.Failure {
		return
	}
	if v != upstream.Neutral {
		s.breaker.record(now, v == upstream.Failure)
	}
	if s.opts.Adaptive.Enabled && (o == upstream.Deadline && v == upstream.Failure || o <= upstream.Redirect && !l.paused) {
		s.adaptive.observe(now, t.Done.Sub(t.Acquired))
	}
}

// resultOf returns the result of a request for the SSP, or of an attempt for its endpoint. A
// response that paused the SSP is Neutral, because the pause is the consequence. So is a timeout if
// the client's deadline was too short to blame the SSP.
func (s *SSP) resultOf(ex *upstream.Exchange, l *leg, o upstream.Outcome, err *upstream.Error) upstream.Result {
	timedOut := o == upstream.Deadline && err.Progress != upstream.NotSent
	switch {
	case l.paused, timedOut && !s.hadEnoughTime(ex, l.start):
		return upstream.Neutral
	case timedOut:
		return upstream.Failure
	default:
		return results[o]
	}
}

// results holds the result of each outcome except a timeout. An outcome caused by adbuffer (a
// full queue, a limit, a cancelled leg) is Neutral.
//
// A response that violates HTTP is a Failure, since it is useless. A response over adbuffer's limit
// is a Success. Shedding requests would not make it smaller, and might hide from operators which
// limit to set.
var results = [upstream.Outcomes]upstream.Result{
	upstream.Fill: upstream.Success, upstream.NoBid: upstream.Success, upstream.Redirect: upstream.Success,
	upstream.ClientError: upstream.Success, upstream.ResponseTooLarge: upstream.Success,
	upstream.ServerError: upstream.Failure, upstream.ConnectFailed: upstream.Failure, upstream.TLSFailed: upstream.Failure,
	upstream.ConnLost: upstream.Failure, upstream.BadResponse: upstream.Failure,
}

// hadEnoughTime reports whether the SSP had its usual time, so that a timeout is its failure. The
// wait for a place is included: the pool of a slow SSP is full, and the breaker must see that. A
// twentieth may be missing for the time before the leg began.
func (s *SSP) hadEnoughTime(ex *upstream.Exchange, start time.Time) bool {
	return ex.Deadline.Sub(start) >= s.blameAfter-s.blameAfter/20
}
