package ssp

import (
	"sync/atomic"

	"adbuffer/internal/machine/rates"
)

// retryBudget bounds the retries and hedges at an SSP to a share of its requests, so that an SSP in trouble does not get
// more load. Each request earns a fifth of a token; a retry or a hedge costs one token. It is safe for
// concurrent use.
//
// Each group of clients (rates.Group) has an account, which starts with ten tokens and holds at most ten. All groups
// share another account, which starts with forty tokens and holds at most forty. A request earns for both accounts, and
// a retry costs a token of both. So a few clients whose requests always fail leave the other groups their
// retries. With a single group, the shared account never runs out first.
type retryBudget struct {
	shared account
	groups [rates.ClientGroups]account
}

const (
	fifthsPerToken = 5
	// The limits of a group's account and of the shared account.
	maxGroupFifths  = 10 * fifthsPerToken
	maxSharedFifths = 4 * maxGroupFifths
)

func (b *retryBudget) init() {
	b.shared.fifths.Store(maxSharedFifths)
	for i := range b.groups {
		b.groups[i].fifths.Store(maxGroupFifths)
	}
}

// earn records a request of a client of group g.
func (b *retryBudget) earn(g rates.Group) { b.add(g, 1) }

// refund returns the token of an attempt that was not sent.
func (b *retryBudget) refund(g rates.Group) { b.add(g, fifthsPerToken) }

func (b *retryBudget) add(g rates.Group, n int64) {
	b.groups[g].add(n, maxGroupFifths)
	b.shared.add(n, maxSharedFifths)
}

// spend takes a token for a retry of a client of group g, and reports whether the accounts had one.
func (b *retryBudget) spend(g rates.Group) bool {
	if !b.groups[g].spend() {
		return false
	}
	if !b.shared.spend() {
		b.groups[g].add(fifthsPerToken, maxGroupFifths)
		return false
	}
	return true
}

// account holds tokens, counted in fifths.
type account struct{ fifths atomic.Int64 }

func (a *account) add(n, limit int64) {
	for {
		// The account is usually full: load before writing to a shared cache line.
		was := a.fifths.Load()
		if was >= limit || a.fifths.CompareAndSwap(was, min(was+n, limit)) {
			return
		}
	}
}

func (a *account) spend() bool {
	for {
		was := a.fifths.Load()
		if was < fifthsPerToken {
			return false
		}
		if a.fifths.CompareAndSwap(was, was-fifthsPerToken) {
			return true
		}
	}
}
