package ssp

import (
	"sync/atomic"

	"adbuffer/internal/upstream"
)

// retryKind is the label `kind` of adbuffer_retries_total.
type retryKind uint8

const (
	retryNotSent retryKind = iota
	retryNotProcessed
	retryStale
	retryHedge
	retryKinds
)

var retryKindNames = [retryKinds]string{"not_sent", "not_processed", "stale", "hedge"}

// maxNotProcessed bounds the attempts that a peer has said it did not act on.
// They cost it nothing, so neither retry.max nor the budget counts them; a peer
// that refuses for ever must still come to an end.
const maxNotProcessed = 10

// retryable says whether a request that failed with e may be sent again, and
// counts it in retries where that is limited. Never after a byte of an answer,
// never after a timeout.
func (s *SSP) retryable(r *Request, e *upstream.Error, n *retryCount) (retryKind, bool) {
	switch {
	case e.Progress == upstream.NotProcessed:
		n.notProcessed++
		return retryNotProcessed, n.notProcessed <= maxNotProcessed
	case e.Stale && e.Progress == upstream.MaybeProcessed:
		ok := s.opts.RetryStale == StaleAll || s.opts.RetryStale == StaleIdempotent && r.Method.Idempotent()
		return retryStale, ok && s.mayRetry(n)
	case e.Progress != upstream.NotSent:
		return 0, false
	}
	switch e.Outcome {
	case upstream.ConnectFailed, upstream.TLSFailed, upstream.ConnLost:
		return retryNotSent, s.mayRetry(n)
	default:
		return 0, false
	}
}

type retryCount struct{ limited, notProcessed int }

func (s *SSP) mayRetry(n *retryCount) bool {
	if n.limited >= s.opts.RetryMax || !s.budget.spend() {
		return false
	}
	n.limited++
	return true
}

// retryBudget bounds retries to a share of the requests, so that an SSP in
// trouble is not asked even more: each request earns a fifth of a token, a
// retry or a hedge costs one, ten are kept at most, and it starts full.
type retryBudget struct{ fifths atomic.Int64 }

const (
	fifthsPerToken = 5
	maxFifths      = 10 * fifthsPerToken
)

func (b *retryBudget) init() { b.fifths.Store(maxFifths) }

func (b *retryBudget) earn() {
	// Full is the common case: look before writing to a shared cache line.
	if b.fifths.Load() >= maxFifths {
		return
	}
	if b.fifths.Add(1) > maxFifths {
		b.fifths.Add(-1)
	}
}

func (b *retryBudget) spend() bool {
	if b.fifths.Add(-fifthsPerToken) < 0 {
		b.fifths.Add(fifthsPerToken)
		return false
	}
	return true
}
