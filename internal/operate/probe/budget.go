package probe

import (
	"context"
	"errors"
	"sync/atomic"
)

var errRequests = errors.New("no request is left in the budget; see --requests")

// budget bounds the connections that are open at once, and the requests of a run.
type budget struct {
	conns    chan struct{}
	requests atomic.Int64
}

func newBudget(conns, requests int) *budget {
	b := &budget{conns: make(chan struct{}, conns)}
	b.requests.Store(int64(requests))
	return b
}

// acquire waits until a connection may be opened. The caller releases it once it is closed.
func (b *budget) acquire(ctx context.Context) error {
	select {
	case b.conns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *budget) release() { <-b.conns }

// take counts a request before it is sent.
func (b *budget) take() error {
	if b.requests.Add(-1) < 0 {
		return errRequests
	}
	return nil
}

// remaining returns how many requests may still be sent.
func (b *budget) remaining() int { return max(0, int(b.requests.Load())) }
