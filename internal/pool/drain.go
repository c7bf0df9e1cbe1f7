package pool

import (
	"context"
	"time"

	"adbuffer/internal/upstream"
)

// warmth is whether min_idle connections have been open once.
type warmth struct {
	done chan struct{} // closed when they were; made by New
	is   bool
}

// Warm opens min_idle connections and returns once they are open, or with ctx's
// error, or with Draining after Close. It returns at once where min_idle is 0.
func (p *Pool) Warm(ctx context.Context) error {
	p.mu.Lock()
	p.growLocked(time.Now())
	p.mu.Unlock()
	select {
	case <-p.warm.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.ctx.Done():
		return errDraining
	}
}

// Ready returns what Warm waits for: whether min_idle connections have been
// open.
func (p *Pool) Ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.warm.is
}

func (p *Pool) warmedLocked() {
	if !p.warm.is && len(p.members)-p.draining >= min(p.opts.MinIdle, p.capLocked()) {
		p.warm.is = true
		close(p.warm.done)
	}
}

// Close lends nothing more, fails those who wait with Draining, closes idle
// connections, and waits for the exchanges under way until ctx ends; what is
// left then is cut. It returns how many places were in use when they were cut.
// No goroutine of the pool is left when it returns.
func (p *Pool) Close(ctx context.Context) (cut int) {
	p.mu.Lock()
	if !p.dead {
		p.shutLocked()
	}
	p.mu.Unlock()
	p.cancel()

	select {
	case <-p.out:
	case <-ctx.Done():
	}

	p.mu.Lock()
	cut = p.inUse
	left := make([]*member, 0, len(p.members))
	for m := range p.members {
		p.drainLocked(m, upstream.ClosedDrain)
		left = append(left, m)
	}
	p.mu.Unlock()
	for _, m := range left {
		m.conn.Close(upstream.ClosedDrain)
		m.Changed()
	}
	p.wg.Wait()
	return cut
}

func (p *Pool) shutLocked() {
	p.dead = true
	if p.retry != nil {
		p.retry.Stop()
		p.retry = nil
	}
	if p.inUse == 0 {
		close(p.out)
	}
	p.failLocked(func(*waiter) error { return errDraining })
	for _, m := range p.idle {
		p.retireLocked(m, upstream.ClosedDrain)
	}
	p.idle = nil
	for len(p.shared) > 0 {
		p.retireLocked(p.shared[0], upstream.ClosedDrain)
	}
}
