package ssp

import (
	"adbuffer/internal/machine/rates"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/wire/exchange"
)

// lender is the part of a pool that an SSP uses.
type lender interface {
	// Acquire acquires a place for ex, and waits for one until ex.Deadline at the latest. Its
	// errors are *exchange.Error with Progress NotSent. It sets ex.Times.Acquired.
	Acquire(ex *exchange.Exchange) (place, error)
	// Refusing reports whether an operator has drained or disabled the SSP.
	Refusing() bool
	// Exclusions counts how often endpoints became excluded: out of service while another endpoint serves.
	Exclusions() uint64
}

// place is one place on a connection. Exactly one of Do and Release must be
// called, once, with the exchange that acquired it.
type place interface {
	Do(ex *exchange.Exchange) error
	Release(ex *exchange.Exchange)
	Protocol() exchange.Protocol
	Host() string
	// Ended records, after Do, how the attempt ended and its result for the endpoint. client is the
	// group of the client that sent the request. Ended reports whether the attempt failed at an
	// endpoint that is out while others serve.
	Ended(o exchange.Outcome, result exchange.Result, client rates.Group, t *exchange.Times) (excluded bool)
}

// poolLender makes a pool.Pool a lender. A pool.Place is one pointer, so an interface holds it
// without an allocation.
type poolLender struct{ pool *pool.Pool }

func (l poolLender) Acquire(ex *exchange.Exchange) (place, error) { return l.pool.Acquire(ex) }

func (l poolLender) Refusing() bool { return l.pool.Refusing() }

func (l poolLender) Exclusions() uint64 { return l.pool.Exclusions() }
