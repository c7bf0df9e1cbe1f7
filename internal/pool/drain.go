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
// error. It returns at once where min_idle is 0.
func (p *Pool) Warm(ctx context.Context) error {
	p.mu.Lock()
	p.warmedLocked()
	p.growLocked(time.Now())
	p.mu.Unlock()
	select {
	case <-p.warm.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
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
func (p *Pool) Close(ctx context.Context) (cut int) {
	p.mu.Lock()
	p.dead = true
	if p.retry != nil {
		p.retry.Stop()
		p.retry = nil
	}
	p.failAllLocked(errDraining)
	p.closeIdleLocked()
	for i := len(p.shared) - 1; i >= 0; i-- {
		p.retireLocked(p.shared[i], upstream.ClosedDrain)
	}
	p.mu.Unlock()
	p.cancel()

	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for waiting := true; waiting; {
		p.mu.Lock()
		cut = p.inUse
		p.mu.Unlock()
		if cut == 0 {
			break
		}
		select {
		case <-ctx.Done():
			waiting = false
		case <-poll.C:
		}
	}
	p.mu.Lock()
	var left []*member
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

func (p *Pool) closeIdleLocked() {
	for _, m := range p.idle {
		p.retireLocked(m, upstream.ClosedDrain)
	}
	p.idle = nil
}
