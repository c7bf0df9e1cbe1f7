package ssp

import "sync/atomic"

// retryBudget bounds retries to a share of the requests, so that an SSP in trouble does not get
// more load. Each request earns a fifth of a token; a retry or a hedge costs one. The budget starts
// with ten tokens and keeps at most ten. It is safe for concurrent use.
type retryBudget struct{ fifths atomic.Int64 }

const (
	fifthsPerToken = 5
	maxFifths      = 10 * fifthsPerToken
)

func (b *retryBudget) init() { b.fifths.Store(maxFifths) }

func (b *retryBudget) earn() { b.add(1) }

// refund returns the token of an attempt that was not sent.
func (b *retryBudget) refund() { b.add(fifthsPerToken) }

func (b *retryBudget) add(n int64) {
	for {
		// The budget is usually full: load before writing to a shared cache line.
		was := b.fifths.Load()
		if was >= maxFifths || b.fifths.CompareAndSwap(was, min(was+n, maxFifths)) {
			return
		}
	}
}

func (b *retryBudget) spend() bool {
	for {
		was := b.fifths.Load()
		if was < fifthsPerToken {
			return false
		}
		if b.fifths.CompareAndSwap(was, was-fifthsPerToken) {
			return true
		}
	}
}
