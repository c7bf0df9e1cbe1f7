package ssp

import (
	"time"

	"adbuffer/internal/upstream"
)

// learn updates the learned state with the outcome of an admitted request.
func (s *SSP) learn(ex *upstream.Exchange, start time.Time, o upstream.Outcome, err *upstream.Error) {
	t := &ex.Times
	now := s.since(t.Done)
	if err == nil && s.backoff.observe(&ex.Response, t.Done, now) {
		return // the pause is the consequence
	}
	timedOut := o == upstream.Deadline && err.Progress != upstream.NotSent
	if timedOut && !s.hadEnoughTime(ex, start) {
		return // the client's deadline was too short to blame the SSP
	}
	switch {
	case timedOut || failure(o):
		s.breaker.record(now, true)
	case success(o):
		s.breaker.record(now, false)
	}
	if s.opts.Adaptive.Enabled && (timedOut || o <= upstream.Redirect) {
		s.adaptive.observe(now, t.Done.Sub(t.Acquired))
	}
}

// failure reports whether an outcome counts as a failure of the SSP. Some timeouts count too, see
// learn.
//
// A response that violates HTTP counts: nothing useful came. An outcome caused by adbuffer (a full
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
// does too: to shed requests would not make it smaller, and might hide from operators which limit
// to set.
func success(o upstream.Outcome) bool {
	switch o {
	case upstream.Fill, upstream.NoBid, upstream.Redirect, upstream.ClientError, upstream.ResponseTooLarge:
		return true
	default:
		return false
	}
}

// hadEnoughTime reports whether the SSP had as long as usual, so that a timeout is its failure. The
// wait for a place is included: the pool of a slow SSP is full, and the breaker must see that. A
// twentieth may be missing for the time before the leg began.
func (s *SSP) hadEnoughTime(ex *upstream.Exchange, start time.Time) bool {
	return ex.Deadline.Sub(start) >= s.blameAfter-s.blameAfter/20
}
