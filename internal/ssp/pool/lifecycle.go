package pool

import (
	"context"
	"time"

	"adbuffer/internal/wire/exchange"
)

// New returns a pool that dials with d. It opens no connection before a call of Warm, a request, the
// janitor, or a health check.
func New(opts Options, d Dialer) *Pool {
	p := &Pool{
		dialer:  d,
		emptied: make(chan struct{}), isWarm: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.waiters.New = func() any { return newWaiter() }
	p.newWaiter = func() *waiter { return p.waiters.Get().(*waiter) }
	p.checker = checker{pool: p, running: make(map[*endpoint]*check)}
	p.growSoon.Ring, p.reviveSoon.Ring = p.growAgain, p.reviveAgain
	p.mu.Lock()
	p.init(opts, time.Now)
	p.stats = p.machine.stats
	p.checker.set(p.opts.HealthCheck, p.conns.endpoints.all)
	p.finish()
	p.Tick(time.Now(), false) // so that a pool that sizes itself begins with its least size
	p.wg.Go((&janitor{pool: p}).run)
	return p
}

// Warm opens min_idle connections and returns once they are open. It returns ctx's error if ctx
// ends, or Draining after Close. It returns at once if min_idle is 0.
func (p *Pool) Warm(ctx context.Context) error {
	p.mu.Lock()
	p.conns.due |= dueGrow
	p.end(time.Time{})
	select {
	case <-p.isWarm:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.ctx.Done():
		return errDraining
	}
}

// Ready reports whether min_idle connections have been open at the same time once.
func (p *Pool) Ready() bool {
	select {
	case <-p.isWarm:
		return true
	default:
		return false
	}
}

// Close drains the pool: it refuses new requests, fails waiting requests with Draining, and closes
// idle connections. It waits for the exchanges under way until ctx ends, then closes their
// connections. It returns how many places were still in use. When it returns, no goroutine of the
// pool runs.
func (p *Pool) Close(ctx context.Context) (cut int) {
	p.mu.Lock()
	if !p.conns.closed {
		p.startClose()
		p.growSoon.Stop()
		p.reviveSoon.Stop()
	}
	p.end(time.Time{})
	p.cancel()

	select {
	case <-p.emptied:
	case <-ctx.Done():
	}

	p.mu.Lock()
	cut = p.conns.inUse
	left := make([]*member, 0, len(p.conns.members))
	for m := range p.conns.members {
		p.conns.drain(m, exchange.ClosedDrain)
		if m.inUse > 0 {
			left = append(left, m)
		}
	}
	p.end(time.Time{})
	for _, m := range left {
		m.conn.Close(exchange.ClosedDrain)
		m.Changed()
	}
	p.wg.Wait()
	return cut
}
