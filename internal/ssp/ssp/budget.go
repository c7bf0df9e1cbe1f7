package ssp

import (
	"sync/atomic"

	"adbuffer/internal/machine/rates"
)

// retryBudget bounds retries to a share of the requests, so that an SSP in trouble does not get
// more load. Each request earns a fifth of a token; a retry or a hedge costs one. It is safe for
// concurrent use.
//
// Each group of clients (rates.Group) has an account, which starts with ten tokens and keeps at most
// ten. A retry costs a token of its client's account, and one of all, which starts with forty. So the
// requests of a few clients that always fail leave the other clients their retries. With a single
// group, its account alone decides.
type retryBudget struct {
	all    account
	groups [rates.ClientGroups]account
}

const (
	fifthsPerToken = 5
	// maxFifths is the maximum of a group's account, maxFifthsOfAll that of all.
	maxFifths      = 10 * fifthsPerToken
	maxFifthsOfAll = 4 * maxFifths
)

func (b *retryBudget) init() {
	b.all.fifths.Store(maxFifthsOfAll)
	for i := range b.groups {
		b.groups[i].fifths.Store(maxFifths)
	}
}

// earn records a request of a client of group g.
func (b *retryBudget) earn(g rates.Group) { b.add(g, 1) }

// refund returns the token of an attempt that was not sent.
func (b *retryBudget) refund(g rates.Group) { b.add(g, fifthsPerToken) }

func (b *retryBudget) add(g rates.Group, n int64) {
	b.groups[g].add(n, maxFifths)
	b.all.add(n, maxFifthsOfAll)
}

// spend takes a token for a retry of a client of group g, and reports whether there was one.
func (b *retryBudget) spend(g rates.Group) bool {
	if !b.groups[g].spend() {
		return false
	}
	if !b.all.spend() {
		b.groups[g].add(fifthsPerToken, maxFifths)
		return false
	}
	return true
}

// account holds tokens.
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
