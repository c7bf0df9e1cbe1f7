package ssp

import (
	"sync/atomic"

	"adbuffer/internal/wire/exchange"
)

// refusal holds the last error of a limit that may refuse many requests. The error is built once for
// each key, so that a flood of refused requests allocates nothing. It is safe for concurrent use.
type refusal[K comparable] struct{ last atomic.Pointer[keyedError[K]] }

type keyedError[K comparable] struct {
	key K
	err *exchange.Error
}

// err returns the error for key, and builds it if the last one was for another key.
func (r *refusal[K]) err(key K, build func() *exchange.Error) *exchange.Error {
	if last := r.last.Load(); last != nil && last.key == key {
		return last.err
	}
	e := &keyedError[K]{key, build()}
	r.last.Store(e)
	return e.err
}
