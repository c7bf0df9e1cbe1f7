package ssp

import (
	"time"

	"adbuffer/internal/upstream"
)

// learn takes in how a request that was admitted has ended.
func (s *SSP) learn(ex *upstream.Exchange, start time.Time, o upstream.Outcome, err *upstream.Error) {
	t := &ex.Times
	now := s.since(t.Done)
	if err == nil && s.backoff.observe(&ex.Response, t.Done, now) {
		return // the pause is what follows from it
	}
	timedOut := o == upstream.Deadline && err.Progress != upstream.NotSent
	if timedOut && !s.hadEnoughTime(ex, start) {
		return // says more about the client than about the SSP
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

// failure reports whether an outcome counts as a failure of the SSP. Timeouts
// do too, see learn.
//
// An answer that breaks a rule of HTTP does: nothing of use has come. What the
// requests met on our side (a full queue, a limit, a cancelled leg) counts
// neither way.
func failure(o upstream.Outcome) bool {
	switch o {
	case upstream.ServerError, upstream.ConnectFailed, upstream.TLSFailed, upstream.ConnLost, upstream.BadResponse:
		return true
	default:
		return false
	}
}

// success reports whether an outcome shows that the SSP works. So does an
// answer over our own limit: to shed requests would not make it smaller, and
// might hide from operators what they have to set.
func success(o upstream.Outcome) bool {
	switch o {
	case upstream.Fill, upstream.NoBid, upstream.Redirect, upstream.ClientError, upstream.ResponseTooLarge:
		return true
	default:
		return false
	}
}

// patient reports whether the SSP was given as long as it usually is, so that a
// timeout is its own. The wait for a place is part of that, or a pool that is
// full because the SSP is slow would keep the breaker from seeing it. A
// twentieth may be missing: what was done before the leg began.
func (s *SSP) hadEnoughTime(ex *upstream.Exchange, start time.Time) bool {
	return ex.Deadline.Sub(start) >= s.blameAfter-s.blameAfter/20
}
