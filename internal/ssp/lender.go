package ssp

import (
	"adbuffer/internal/pool"
	"adbuffer/internal/upstream"
)

// lender is what an SSP asks of its pool.
type lender interface {
	// Acquire lends a place to ex, and waits for one until ex.Deadline at the
	// latest; its errors are *upstream.Error with Progress NotSent. It sets
	// ex.Times.Lent.
	Acquire(ex *upstream.Exchange) (place, error)
}

// place is one place on a connection. Exactly one of Do and Release must be
// called, once.
type place interface {
	Do(ex *upstream.Exchange) error
	Release()
	Protocol() upstream.Protocol
	Host() string
}

// poolLender makes a pool.Pool a lender. A pool.Place is one pointer, so that
// an interface holds it without an allocation.
type poolLender struct{ pool *pool.Pool }

func (l poolLender) Acquire(ex *upstream.Exchange) (place, error) { return l.pool.Acquire(ex) }
