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
		dialer: d, stats: newStats(), opts: opts,
		drained: make(chan struct{}), warm: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.waiters.New = func() any { return newWaiter() }
	p.conns = connections{
		opts: &p.opts, stats: p.stats, closeSoon: p.closeSoon,
		members: make(map[*member]struct{}), forecast: forecast{protocol: opts.Protocol},
		idleRule: idleRule{opts: &p.opts, learned: &p.learned},
	}
	now := time.Now()
	p.conns.endpoints.kept = &p.conns.kept
	p.conns.endpoints.Init(now)
	p.governor = newGovernor(&p.opts, &p.conns.endpoints)
	p.growth = growth{opts: &p.opts, queue: &p.queue, conns: &p.conns, governor: &p.governor}
	p.checker = checker{pool: p, running: make(map[*endpoint]*check)}
	p.growSoon.Ring, p.reviveSoon.Ring = p.growAgain, p.reviveAgain
	p.setEndpointOptionsLocked(now)
	p.queue.setFair(opts.Fair, now)
	p.needs.note(p.stats.sums(time.Now()))
	p.Tick(now, false) // so that a pool that sizes itself begins with its least size
	p.wg.Go(p.janitor)
	return p
}

// Warm opens min_idle connections and returns once they are open. It returns ctx's error if ctx
// ends, or Draining after Close. It returns at once if min_idle is 0.
func (p *Pool) Warm(ctx context.Context) error {
	p.mu.Lock()
	p.conns.due |= dueGrow
	p.end(time.Time{})
	select {
	case <-p.warm:
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
	case <-p.warm:
		return true
	default:
		return false
	}
}

func (p *Pool) noteWarmLocked() {
	if !p.Ready() && p.conns.serving() >= p.growth.minIdle() {
		close(p.warm)
	}
}

// Close drains the pool: it refuses new requests, fails waiting requests with Draining, and closes
// idle connections. It waits for the exchanges under way until ctx ends, then closes their
// connections. It returns how many places were still in use. When it returns, no goroutine of the
// pool runs.
func (p *Pool) Close(ctx context.Context) (cut int) {
	p.mu.Lock()
	if !p.closed {
		p.startDrainLocked()
	}
	p.end(time.Time{})
	p.cancel()

	select {
	case <-p.drained:
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

func (p *Pool) startDrainLocked() {
	p.closed = true
	p.growSoon.Stop()
	p.reviveSoon.Stop()
	if p.conns.inUse == 0 {
		close(p.drained)
	}
	p.failWaitersLocked(func(*waiter) error { return errDraining })
	for _, w := range p.queue.elsewhere {
		w.elsewhere, w.queued = false, false
		w.ready <- waitResult{err: errDraining}
	}
	p.queue.elsewhere = nil
	p.conns.drainFree()
}

// closeSoon closes m's connection in its own goroutine, because a close may write (TLS's
// close_notify). The connection counts towards max_conns until Close has returned.
func (p *Pool) closeSoon(m *member) {
	p.wg.Go(func() {
		m.conn.Close(m.why)
		p.mu.Lock()
		defer p.end(time.Time{})
		p.conns.closing--
		p.conns.due |= dueGrow
	})
}
