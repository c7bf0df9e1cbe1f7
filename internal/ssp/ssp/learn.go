package ssp

import (
	"time"

	"adbuffer/internal/wire/exchange"
)

// learn updates the learned state with the outcome of an admitted request. It ignores a failure at
// an endpoint that is out while others serve: later requests go to the others. See breaker.
func (s *SSP) learn(ex *exchange.Exchange, c *call, o exchange.Outcome, err *exchange.Error) {
	v := s.resultOf(ex, c, o, err)
	if c.excluded && v == exchange.Failure {
		return
	}
	if v != exchange.Neutral {
		s.breaker.record(s.since(ex.Times.Done), c.client, v == exchange.Failure)
	}
}

// resultOf returns the result of a request for the SSP, or of an attempt for its endpoint. A
// response that paused the SSP is Neutral, because the pause is the consequence. So is a timeout if
// the SSP did not have enough time to be blamed, and a failure for which that of another exchange stands.
func (s *SSP) resultOf(ex *exchange.Exchange, c *call, o exchange.Outcome, err *exchange.Error) exchange.Result {
	timedOut := o == exchange.Deadline && err.Progress != exchange.NotSent
	switch {
	case c.paused, timedOut && !s.hadEnoughTime(ex, c.start), err != nil && err.Collateral:
		return exchange.Neutral
	case timedOut:
		return exchange.Failure
	default:
		return o.Row().Result
	}
}

// hadEnoughTime reports whether the SSP had its usual time, so that a timeout is its failure. The
// wait for a place is included: the pool of a slow SSP is full, and the breaker must see that. A
// twentieth may be missing for the time before the call began, and a quarter for lag. A busy adbuffer
// always lags a little, and must still see that an SSP hangs.
func (s *SSP) hadEnoughTime(ex *exchange.Exchange, start time.Time) bool {
	had, usual := ex.Deadline.Sub(start), s.usualTimeout()
	return had >= usual && had-ex.Span.Lag(ex.Times.Done) >= usual-usual/4
}

func (s *SSP) usualTimeout() time.Duration { return s.blameAfter - s.blameAfter/20 }

// HadUsualTime reports, after Do with ex, whether the SSP had its usual time.
func (s *SSP) HadUsualTime(ex *exchange.Exchange) bool { return s.hadEnoughTime(ex, ex.Times.Queued) }
