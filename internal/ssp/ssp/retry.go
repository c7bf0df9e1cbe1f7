package ssp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/wire/exchange"
)

// retryKind is the reason why a request is sent again. Except for firstAttempt it is the label
// `kind` of adbuffer_retries_total.
type retryKind int8

const (
	firstAttempt      retryKind = iota - 1
	retryNotSent                // no byte of it reached the SSP
	retryNotProcessed           // the SSP stated that it did not and will not process it
	retryStale                  // a reused connection closed before the response
	retryHedge                  // the first attempt was late
	retryKinds
)

var retryKindNames = [retryKinds]string{"not_sent", "not_processed", "stale", "hedge"}

// String returns the label, "" for firstAttempt.
func (k retryKind) String() string {
	if k == firstAttempt {
		return ""
	}
	return retryKindNames[k]
}

// retries counts the retries of one request, and holds the requirements of its next attempt.
type retries struct {
	limited int // counted by retry.max: failed dials, and requests that were not sent
	unsent  int // attempts on connections that took no more requests
	resends int // sent again after the SSP refused it or closed the connection; see mayResend
	closed  int // see mostClosed

	resent    bool // the SSP provably did not process the last attempt, which was not the reason
	refused   bool // the SSP received the last attempt, and said that it did not process it
	isolated  bool // the next attempt must share no connection
	overHTTP1 bool // the next attempt must use HTTP/1
}

// retryable decides whether a request that failed with e is sent again, and counts the retry. It is
// never sent again after a byte of a response, or after its deadline. retryable may pause before it
// returns.
func (s *SSP) retryable(r *Request, ex *exchange.Exchange, e *exchange.Error, c *call) (retryKind, bool) {
	if hasEnded(ex) || e.Outcome.Row().Retry != exchange.RetryAllowed {
		return 0, false
	}
	n := &c.retries
	n.resent, n.refused = false, false
	switch {
	case e.OverHTTP1:
		ok := !n.overHTTP1
		n.overHTTP1 = true
		return retryNotProcessed, ok
	case e.Isolate == exchange.IsolateNext && n.isolated:
		return 0, false
	case e.Isolate == exchange.IsolateNext && e.Progress == exchange.NotSent:
		n.isolated = true
		return retryNotSent, true
	case e.Isolate == exchange.IsolateNext:
		n.isolated = true
		return retryNotProcessed, s.mayResend(ex, c, retryNotProcessed, n.resends == 0)
	case e.Progress == exchange.NotProcessed && e.Unsent:
		n.resent = true
		n.unsent++
		return retryNotProcessed, pace(ex, c.start, n.unsent)
	case e.Progress == exchange.NotProcessed && ex.Protocol == exchange.HTTP1Pipelined && ex.Served >= fifthsPerToken && n.closed < mostClosed:
		n.resent = true
		n.closed++
		return retryNotProcessed, true
	case e.Progress == exchange.NotProcessed:
		n.resent, n.refused = true, true
		ok := s.mayResend(ex, c, retryNotProcessed, n.resends == 0 || ex.Served >= fifthsPerToken)
		n.isolated = n.isolated || e.Isolate == exchange.IsolateLast && n.resends > max(1, s.opts.RetryMax)
		return retryNotProcessed, ok
	case e.Progress == exchange.NotSent && e.Outcome == exchange.ConnLost && ex.Reused:
		// The reused connection was closed before the request was sent. The SSP may have closed
		// many connections at once, and a retry needs no dial.
		n.unsent++
		return retryNotSent, pace(ex, c.start, n.unsent)
	case e.Progress == exchange.NotSent:
		return retryNotSent, !repeatsDialError(e) && s.mayRetry(c)
	case e.Stale:
		// An SSP that restarts closes all connections at once, more than the budget has tokens for.
		// So a connection whose own responses have earned a token pays with it; otherwise the budget
		// pays. In both cases at most every fifth request is sent again.
		ok := s.opts.RetryStale == StaleAll || s.opts.RetryStale != StaleNever && r.Method.Idempotent()
		return retryStale, ok && s.mayResend(ex, c, retryStale, ex.Served >= fifthsPerToken)
	default:
		return 0, false
	}
}

// mostClosed is how often a request goes again, uncounted, because the SSP closed a pipelined connection
// that had served well. Many SSPs close a connection after a thousand requests, and connections that were
// opened together end together. A GOAWAY counts: with it an SSP may refuse.
const mostClosed = 3

// resendPause is the pause before a request is sent again for the second time. It doubles each time.
const resendPause = 10 * time.Millisecond

// mayResend decides whether a request that was sent and provably not processed, or may be repeated,
// is sent again: at most retry.max + 1 times, after pauses that grow. The budget pays, unless the
// retry is free: the first one, or one that the responses of its connection have earned. An SSP that
// refuses requests is overloaded, and must not get each of them again and again. mayResend waits for the
// pause, at most until the exchange ends.
func (s *SSP) mayResend(ex *exchange.Exchange, c *call, why retryKind, free bool) bool {
	n := &c.retries
	if n.resends > s.opts.RetryMax || !free && !s.pay(c.client, why) {
		return false
	}
	n.resends++
	if n.resends == 1 {
		return true
	}
	return pauseUntil(ex, time.Now().Add(resendPause<<min(n.resends-2, 10)))
}

// A request that found only connections that take no more requests costs the SSP nothing. It tries
// again until its deadline, and retry.max and the budget do not count that. The attempts are paced.
// After the first few, a pause separates two attempts: paceShare of the call's time so far, and at
// least paceMin. So their number grows with the logarithm of the time: 40 attempts in 300 ms, 65 in 5 s.
const (
	unpacedAttempts = 3
	paceShare       = 8
	paceMin         = time.Millisecond
)

// pace waits until the attempt after the n-th unsent one may begin, like pauseUntil.
func pace(ex *exchange.Exchange, start time.Time, n int) bool {
	if n <= unpacedAttempts {
		return true
	}
	last := ex.Times.Acquired
	return pauseUntil(ex, last.Add(max(last.Sub(start)/paceShare, paceMin)))
}

// pauseUntil waits until next. It returns false if that moment is after the deadline, or if the
// exchange ends.
func pauseUntil(ex *exchange.Exchange, next time.Time) bool {
	wait := time.Until(next)
	switch {
	case wait <= 0:
		return true
	case !next.Before(ex.Deadline):
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-parentOf(ex).Done():
		return false
	}
}

// hasEnded reports whether the exchange was cancelled or its deadline has passed.
func hasEnded(ex *exchange.Exchange) bool {
	return ex.Context != nil && ex.Context.Err() != nil || !time.Now().Before(ex.Deadline)
}

// lastError returns the error of a request that is not sent again after e. If the request was sent
// again before, the error says how often, and names the setting.
func (n *retries) lastError(e *exchange.Error, sent int) *exchange.Error {
	if n.resends == 0 || e.Progress != exchange.NotProcessed && !e.Stale {
		return e
	}
	last := *e
	last.Detail = fmt.Sprintf("%s; it was sent %d times; see retry.max", e.Detail, sent)
	return &last
}

// repeatsDialError reports whether e only repeats the error of an earlier dial: every address is
// backing off, and an immediate retry would fail.
func repeatsDialError(e *exchange.Error) bool {
	var earlier *exchange.Error
	return isDialError(e) && errors.As(e.Err, &earlier)
}

// isDialError reports whether e means that no connection could be opened.
func isDialError(e *exchange.Error) bool {
	return e.Outcome == exchange.ConnectFailed || e.Outcome == exchange.TLSFailed
}

func (s *SSP) mayRetry(c *call) bool {
	n := &c.retries
	if n.limited >= s.opts.RetryMax || !s.pay(c.client, retryNotSent) {
		return false
	}
	n.limited++
	return true
}

// pay spends a token of the budget for a retry of a request of client, or counts that the budget
// refused the retry.
func (s *SSP) pay(client rates.Group, why retryKind) bool {
	if s.budget.spend(client) {
		return true
	}
	s.stats.overBudget[why].Add(1)
	return false
}

// preventedRetry reports whether e prevented the sending of the retry of failed. Then failed is the
// outcome of the request: e is a limit of adbuffer, or contains no more information than failed.
func preventedRetry(failed, e *exchange.Error) bool {
	if e.Outcome.Row().Retry == exchange.RetryPrevented {
		return e.Progress == exchange.NotSent
	}
	return e == exchange.ErrOnlyHTTP2 || isDialError(failed) && repeatsDialError(e)
}

// parentOf returns the context that ends ex early. It is never nil.
func parentOf(ex *exchange.Exchange) context.Context {
	if ex.Context != nil {
		return ex.Context
	}
	return context.Background()
}
