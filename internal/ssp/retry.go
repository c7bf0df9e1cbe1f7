package ssp

import (
	"context"
	"errors"
	"time"

	"adbuffer/internal/upstream"
)

// again says for what reason a request is sent once more. But for firstTime it
// is the label `kind` of adbuffer_retries_total.
type again int8

const (
	firstTime         again = iota - 1
	againNotSent            // nothing of it had reached the SSP
	againNotProcessed       // the SSP has said that it did not and will not act on it
	againStale              // a reused connection had closed before any answer
	againHedge              // the first was late
	againKinds
)

var againNames = [againKinds]string{"not_sent", "not_processed", "stale", "hedge"}

// maxNotProcessed bounds the attempts that a peer has said it did not act on.
// They cost it nothing, so neither retry.max nor the budget counts them; a peer
// that refuses for ever must still come to an end.
const maxNotProcessed = 10

// retries is how often one request was sent again.
type retries struct{ limited, notProcessed, stale int }

// retryable says whether a request that failed with e is sent again, and takes
// that from what it may. Never after a byte of an answer, never after its time
// was up, and not where it would be in vain.
func (s *SSP) retryable(r *Request, ex *upstream.Exchange, e *upstream.Error, n *retries) (again, bool) {
	if ended(ex) {
		return 0, false
	}
	switch e.Outcome {
	case upstream.ConnectFailed, upstream.TLSFailed, upstream.ConnLost, upstream.BadResponse:
	default:
		return 0, false // a limit of ours, a deadline, or nobody wants it any more
	}
	switch {
	case e.Progress == upstream.NotProcessed:
		n.notProcessed++
		return againNotProcessed, n.notProcessed <= maxNotProcessed
	case e.Progress == upstream.NotSent && e.Outcome == upstream.ConnLost && ex.Reused:
		// A kept connection was found closed when it was to be used. There may
		// be as many of those as the SSP closed at once, and no dial is due yet.
		n.notProcessed++
		return againNotSent, n.notProcessed <= maxNotProcessed
	case e.Progress == upstream.NotSent:
		return againNotSent, !quoted(e) && s.mayRetry(n)
	case e.Stale:
		// The next kept connection may be as stale as this one: retry.max does
		// not count them, but the budget does.
		n.stale++
		ok := s.opts.RetryStale == StaleAll || s.opts.RetryStale == StaleIdempotent && r.Method.Idempotent()
		return againStale, ok && n.stale <= maxNotProcessed && s.budget.spend()
	default:
		return 0, false
	}
}

// ended reports whether nobody waits for the exchange any more.
func ended(ex *upstream.Exchange) bool {
	return ex.Context != nil && ex.Context.Err() != nil || !time.Now().Before(ex.Deadline)
}

// quoted reports whether e only repeats why an earlier dial failed: every
// address is left alone just now, and asking again at once is in vain.
func quoted(e *upstream.Error) bool {
	var earlier *upstream.Error
	return e.Outcome == upstream.ConnectFailed && errors.As(e.Err, &earlier)
}

func (s *SSP) mayRetry(n *retries) bool {
	if n.limited >= s.opts.RetryMax || !s.budget.spend() {
		return false
	}
	n.limited++
	return true
}

// kept reports whether a limit of ours kept a retry from being sent, so that
// what it was to mend still is how the request ended.
func kept(e *upstream.Error) bool {
	switch e.Outcome {
	case upstream.QPSLimit, upstream.PendingFull, upstream.PendingTimeout, upstream.Deadline, upstream.Overloaded:
		return e.Progress == upstream.NotSent
	default:
		return false
	}
}

// parentOf is the context that ends ex early, never nil.
func parentOf(ex *upstream.Exchange) context.Context {
	if ex.Context != nil {
		return ex.Context
	}
	return context.Background()
}
