package ssp

import (
	"context"
	"errors"
	"time"

	"adbuffer/internal/upstream"
)

// again says for what reason a request is sent once more. But for firstTime it
// is the label `kind` of adbuffer_retries_total.
type retryKind int8

const (
	firstAttempt      retryKind = iota - 1
	retryNotSent                // nothing of it had reached the SSP
	retryNotProcessed           // the SSP has said that it did not and will not act on it
	retryStale                  // a reused connection had closed before any answer
	retryHedge                  // the first was late
	retryKinds
)

var retryKindNames = [retryKinds]string{"not_sent", "not_processed", "stale", "hedge"}

// maxStale bounds the attempts on connections that had closed. An SSP that
// closes each connection after a request was sent must still come to an end.
const maxStale = 10

// retries is what one request was sent again for, and what that means for its
// next attempt.
type retries struct {
	limited      int // counted by retry.max: failed dials, and requests that were not sent
	notProcessed int
	stale        int

	resent    bool // the last attempt was provably not processed
	overHTTP1 bool // the next attempt must use HTTP/1
}

// terms sets what the next attempt asks of the pool. It returns ex.Redials.
func (n *retries) terms(ex *upstream.Exchange, most int) (redials int) {
	ex.Resent, ex.Redials = n.resent, most-n.limited
	return ex.Redials
}

// retryable says whether a request that failed with e is sent again, and takes
// that from what it may. Never after a byte of an answer, never after its time
// was up, and not where it would be in vain. It may pause before.
func (s *SSP) retryable(r *Request, ex *upstream.Exchange, e *upstream.Error, l *leg) (retryKind, bool) {
	if isOver(ex) {
		return 0, false
	}
	switch e.Outcome {
	case upstream.ConnectFailed, upstream.TLSFailed, upstream.ConnLost, upstream.BadResponse:
	default:
		return 0, false // a limit of ours, a deadline, or nobody wants it any more
	}
	n := &l.retries
	n.resent = false
	switch {
	case e.OverHTTP1:
		ok := !n.overHTTP1
		n.overHTTP1 = true
		return retryNotProcessed, ok
	case e.Progress == upstream.NotProcessed:
		n.resent = true
		n.notProcessed++
		return retryNotProcessed, pace(ex, l.start, n.notProcessed)
	case e.Progress == upstream.NotSent && e.Outcome == upstream.ConnLost && ex.Reused:
		// A kept connection was found closed when it was to be used. There may
		// be as many of those as the SSP closed at once, and no dial is due yet.
		n.notProcessed++
		return retryNotSent, pace(ex, l.start, n.notProcessed)
	case e.Progress == upstream.NotSent:
		return retryNotSent, !repeatsDialError(e) && s.mayRetry(n)
	case e.Stale:
		// The next kept connection may be as stale as this one: retry.max does
		// not count them, but the budget does.
		n.stale++
		ok := s.opts.RetryStale == StaleAll || s.opts.RetryStale == StaleIdempotent && r.Method.Idempotent()
		return retryStale, ok && n.stale <= maxStale && s.budget.spend()
	default:
		return 0, false
	}
}

// What was not processed is sent again until the deadline: retry.max and the
// budget do not count it, since it costs the SSP nothing. The attempts are paced,
// so that an SSP that refuses for ever costs adbuffer little: after the first
// few, an attempt begins paceShare of the leg's time so far, and at least paceMin,
// after the one before. So their number grows with the logarithm of the time: 40
// attempts in 300 ms, 65 in 5 s.
const (
	unpacedAttempts = 3
	paceShare       = 8
	paceMin         = time.Millisecond
)

// pace waits until the attempt that follows the n-th refusal may begin. It
// returns false where that is not before the deadline, or the exchange ends.
func pace(ex *upstream.Exchange, start time.Time, n int) bool {
	if n <= unpacedAttempts {
		return true
	}
	last := ex.Times.Acquired
	next := last.Add(max(last.Sub(start)/paceShare, paceMin))
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

// ended reports whether nobody waits for the exchange any more.
func isOver(ex *upstream.Exchange) bool {
	return ex.Context != nil && ex.Context.Err() != nil || !time.Now().Before(ex.Deadline)
}

// quoted reports whether e only repeats why an earlier dial failed: every
// address is left alone just now, and asking again at once is in vain.
func repeatsDialError(e *upstream.Error) bool {
	var earlier *upstream.Error
	return isDialError(e) && errors.As(e.Err, &earlier)
}

// notDialled reports whether e says that no connection could be opened.
func isDialError(e *upstream.Error) bool {
	return e.Outcome == upstream.ConnectFailed || e.Outcome == upstream.TLSFailed
}

func (s *SSP) mayRetry(n *retries) bool {
	if n.limited >= s.opts.RetryMax || !s.budget.spend() {
		return false
	}
	n.limited++
	return true
}

// keptFrom reports whether e kept the retry of failed from being sent, so that
// failed still is how the request ended: e is a limit of ours, or says no more
// than failed does.
func preventedRetry(failed, e *upstream.Error) bool {
	switch e.Outcome {
	case upstream.QPSLimit, upstream.PendingFull, upstream.PendingTimeout, upstream.Deadline, upstream.Overloaded:
		return e.Progress == upstream.NotSent
	default:
		return e == errOnlyHTTP2 || isDialError(failed) && repeatsDialError(e)
	}
}

// errOnlyHTTP2: the request may be sent again over HTTP/1 only, and the SSP is
// asked over HTTP/2. Callers see what it was to be sent again for.
var errOnlyHTTP2 = &upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.NotSent}

// parentOf is the context that ends ex early, never nil.
func parentOf(ex *upstream.Exchange) context.Context {
	if ex.Context != nil {
		return ex.Context
	}
	return context.Background()
}
