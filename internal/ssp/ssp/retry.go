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
	limited int // bounded by retry.max: retries of requests that were not sent, and failed dials that they outlasted
	unsent  int // retries after attempts on connections that took no more requests
	resends int // retries after the SSP refused the request or closed the connection; see resend
	closed  int // see maxFreeCloses

	resent    bool // the SSP provably did not process the last attempt, for a reason other than the request itself
	refused   bool // the SSP received the last attempt, and said that it did not process it
	isolated  bool // the next attempt must share no connection
	overHTTP1 bool // the next attempt must use HTTP/1
}

// failure is a failed attempt, as the retry rules see it.
type failure struct {
	err        *exchange.Error
	idempotent bool              // the request's method
	protocol   exchange.Protocol // of the connection
	reused     bool              // Exchange.Reused
	served     int               // Exchange.Served
	// acquired is when the attempt acquired its place, and at is when it failed. Both count from the begin
	// of the call.
	acquired, at time.Duration
}

// decision is what the retry rules decide about a failure.
type decision struct {
	kind  retryKind     // firstAttempt: the request is not sent again
	pause time.Duration // from the failure to the next attempt
	token bool          // the retry costs a token of the retry budget
	next  retries       // the counts and requirements of the next attempt
}

// retryRules are the settings that decide about retries.
type retryRules struct {
	limit int // retry.max
	stale RetryStale
}

var noRetry = decision{kind: firstAttempt}

// decide decides whether a request is sent again after f. n holds the counts of the attempts so far. A
// request is never sent again after a byte of a response. The caller checks the deadline and the budget.
//
//	failure                                            retry                       bounded by
//	the SSP wants HTTP/1                               at once, over HTTP/1        one retry
//	the request must not share its connection          at once or later, isolated  one retry; if sent, see resend
//	the connection took no more requests               paced                       the deadline
//	a pipelined connection that served well closed     at once                     maxFreeCloses
//	refused or provably not processed                  after a growing pause       retry.max + 1, tokens
//	not sent, for another reason                       at once                     retry.max, tokens
//	stale: a reused connection closed first            after a growing pause       retry.stale, retry.max + 1, tokens
func (rules retryRules) decide(f failure, n retries) decision {
	e := f.err
	if e.Outcome.Row().Retry != exchange.RetryAllowed {
		return noRetry
	}
	n.resent, n.refused = false, false
	switch {
	case e.OverHTTP1:
		if n.overHTTP1 {
			return noRetry
		}
		n.overHTTP1 = true
		return decision{kind: retryNotProcessed, next: n}
	case e.Isolate == exchange.IsolateNext && n.isolated:
		return noRetry
	case e.Isolate == exchange.IsolateNext && e.Progress == exchange.NotSent:
		n.isolated = true
		return decision{kind: retryNotSent, next: n}
	case e.Isolate == exchange.IsolateNext:
		n.isolated = true
		return rules.resend(retryNotProcessed, n, n.resends == 0)
	case e.Progress == exchange.NotProcessed && e.Unsent:
		n.resent = true
		return f.pace(retryNotProcessed, n)
	case e.Progress == exchange.NotProcessed && f.protocol == exchange.HTTP1Pipelined && f.served >= fifthsPerToken && n.closed < maxFreeCloses:
		n.resent = true
		n.closed++
		return decision{kind: retryNotProcessed, next: n}
	case e.Progress == exchange.NotProcessed:
		n.resent, n.refused = true, true
		d := rules.resend(retryNotProcessed, n, n.resends == 0 || f.served >= fifthsPerToken)
		if e.Isolate == exchange.IsolateLast && d.next.resends > max(1, rules.limit) {
			d.next.isolated = true
		}
		return d
	case e.Progress == exchange.NotSent && e.Outcome == exchange.ConnLost && f.reused:
		// Before the request was sent, the reused connection was closed, or an earlier response on it became
		// overdue. That may have happened to many connections at once, and a retry needs no dial.
		return f.pace(retryNotSent, n)
	case e.Progress == exchange.NotSent:
		if repeatsDialError(e) || n.limited >= rules.limit {
			return noRetry
		}
		n.limited++
		return decision{kind: retryNotSent, token: true, next: n}
	case e.Stale && (rules.stale == StaleAll || rules.stale != StaleNever && f.idempotent):
		// An SSP that restarts closes all connections at once, more than the budget has tokens for.
		// So a connection whose own responses have earned a token pays with it; otherwise the budget
		// pays. In both cases, five requests pay for one retry.
		return rules.resend(retryStale, n, f.served >= fifthsPerToken)
	default:
		return noRetry
	}
}

// maxFreeCloses is how often a request is sent again, uncounted, because the SSP closed a pipelined connection
// that had served well. Many SSPs close a connection after a thousand requests, and connections that were
// opened together end together. A request that a GOAWAY refuses is counted: an overloaded SSP may refuse requests
// in this way.
const maxFreeCloses = 3

// resendPause is the pause before a request is sent again for the second time. It doubles each time.
const resendPause = 10 * time.Millisecond

// resend decides about a request that was sent and provably not processed, or may be repeated: it is sent
// again at most retry.max + 1 times, after pauses that grow. The budget pays, unless the retry is free: the
// first retry, or a retry that the responses of the connection have earned. An SSP that refuses requests is
// overloaded, and must not get each of them again and again.
func (rules retryRules) resend(kind retryKind, n retries, free bool) decision {
	if n.resends > rules.limit {
		return noRetry
	}
	n.resends++
	d := decision{kind: kind, token: !free, next: n}
	if n.resends > 1 {
		d.pause = resendPause << min(n.resends-2, 10)
	}
	return d
}

// A request whose connection takes no more requests costs the SSP nothing. It is tried again until its
// deadline, and these retries do not count against retry.max or the budget. The attempts are paced.
// After the first few, a pause separates two attempts: paceShare of the call's time so far, and at
// least paceMin. So their number grows with the logarithm of the time: 40 attempts in 300 ms, 65 in 5 s.
const (
	unpacedAttempts = 3
	paceShare       = 8
	paceMin         = time.Millisecond
)

// pace decides about a request that was not sent: it is tried again, and a pause separates the begins of the
// two attempts.
func (f failure) pace(kind retryKind, n retries) decision {
	n.unsent++
	d := decision{kind: kind, next: n}
	if n.unsent > unpacedAttempts {
		d.pause = max(0, f.acquired+max(f.acquired/paceShare, paceMin)-f.at)
	}
	return d
}

// retry decides whether the request of ex is sent again after e, and waits until the next attempt may begin. The
// budget pays only for a retry that begins before the deadline.
func (s *SSP) retry(r *Request, ex *exchange.Exchange, e *exchange.Error, c *call) (retryKind, bool) {
	if ex.Context != nil && ex.Context.Err() != nil {
		return 0, false
	}
	now := time.Now()
	d := retryRules{s.opts.RetryMax, s.opts.RetryStale}.decide(failure{
		err: e, idempotent: r.Method.Idempotent(), protocol: ex.Protocol, reused: ex.Reused, served: ex.Served,
		acquired: ex.Times.Acquired.Sub(c.start), at: now.Sub(c.start),
	}, c.retries)
	if d.kind == firstAttempt || !now.Add(d.pause).Before(ex.Deadline) || d.token && !s.pay(c.client, d.kind) {
		return 0, false
	}
	if !waitFor(ex, d.pause) {
		if d.token {
			s.budget.refund(c.client)
		}
		return 0, false
	}
	c.retries = d.next
	return d.kind, true
}

// waitFor waits for d. It returns false if the exchange is cancelled first.
func waitFor(ex *exchange.Exchange, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-parentOf(ex).Done():
		return false
	}
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
