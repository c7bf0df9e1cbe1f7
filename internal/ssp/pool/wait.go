package pool

import (
	"context"
	"time"

	"adbuffer/internal/wire/exchange"
)

// enqueueLocked puts ex into its queue. again says that ex had a place on a stale connection.
func (p *Pool) enqueueLocked(ex *exchange.Exchange, isolated, again bool) (*waiter, error) {
	now := time.Now()
	if !now.Before(ex.Deadline) {
		return nil, exchange.ErrDeadlineNotSent
	}
	w := p.waiters.Get().(*waiter)
	w.begin(ex, again, &p.opts, now)
	w.isolated = isolated
	p.queueOf(isolated).push(w, now)
	p.conns.due |= dueGrow
	return w, nil
}

// settleWaitLocked settles the arrival of w, a new waiter. If w still waits afterwards, it starts w's
// timer. It counts w if w waits because of a limit.
func (p *Pool) settleWaitLocked(w *waiter) {
	now := time.Now()
	p.settleLocked(now)
	if w.elsewhere {
		return // takeElsewhereLocked has started its timer
	}
	if w.pending && !w.isolated && p.growth.atLimit() {
		p.stats.limitWaits.Add(1)
	}
	if w.queued {
		w.arm(now)
	}
}

// wait waits for the place of ex, and releases w.
func (p *Pool) wait(w *waiter, ex *exchange.Exchange) (*lease, acquireOutcome, error) {
	defer p.waiters.Put(w)
	r := p.await(w, ex.Context)
	ex.Redialed = ex.Redials - w.redials
	if r.lease == nil && r.err == nil {
		r.err = r.full.error()
	}
	if r.err != nil {
		return nil, timedOut, r.err
	}
	ex.Times.Acquired, ex.Ticket = time.Now(), r.ticket
	if !r.dialed {
		return r.lease, waited, nil
	}
	ex.Times.DNS, ex.Times.TCP, ex.Times.TLS = r.took.dns, r.took.tcp, r.took.tls
	return r.lease, dialed, nil
}

// await returns the result of w. When it returns, w is outside the queue, its channel is empty, and
// its timer is stopped.
func (p *Pool) await(w *waiter, ctx context.Context) waitResult {
	var cancelled <-chan struct{}
	if ctx != nil {
		cancelled = ctx.Done()
	}
	for {
		var err error
		select {
		case r := <-w.ready:
			w.timer.Stop()
			return r
		case <-cancelled:
			err = errCancelled
		case <-w.timer.C:
		}
		p.mu.Lock()
		if !w.queued {
			// The result came at the same instant; it takes precedence.
			p.mu.Unlock()
			w.timer.Stop()
			return <-w.ready
		}
		now := time.Now()
		if w.elsewhere && err == nil {
			p.endElsewhereLocked(w, now)
			p.end(now)
			continue
		}
		if err == nil {
			err = w.overdue(&p.opts, p.conns.placeSettingsFor(w), p.pauseCauseLocked(), now)
		}
		if err == nil {
			w.arm(now)
			p.end(now)
			continue
		}
		if w.elsewhere {
			p.queue.leaveElsewhere(w)
		} else {
			p.queueOf(w.isolated).remove(w)
		}
		w.timer.Stop()
		p.conns.due |= dueGrow
		p.end(now)
		return waitResult{err: err}
	}
}

// giveLocked gives a place of to.m to the first waiter, or to a later one if the first avoids its
// endpoint.
func (p *Pool) giveLocked(to choice, r waitResult, now time.Time) {
	m := to.m
	q := p.queueOf(to.isolated)
	w := q.first()
	if w.avoid == m.ep.Name && p.conns.endpoints.HasOther(w.avoid) {
		w = q.yield(w, m)
	}
	q.remove(w)
	p.giveToLocked(w, to, r, now)
}

// giveToLocked gives a place of to.m to w, which has left its queue.
func (p *Pool) giveToLocked(w *waiter, to choice, r waitResult, now time.Time) {
	r.lease, r.ticket = p.conns.acquire(to, w.alone, now), p.queueOf(w.isolated).pay(w)
	w.ready <- r
}

func (p *Pool) fullLocked() queueFull {
	return queueFull{
		load: p.conns.load(), conns: len(p.conns.members) + p.governor.dialing, connsLimit: p.conns.limit(),
		pending: p.queue.pending, maximum: p.opts.MaxPending, settings: p.conns.placeSettings(), fair: p.queue.fair != nil,
		cause: p.pauseCauseLocked(),
	}
}

// pauseCauseLocked returns why the pool opens no connection, or nil if nothing prevents it.
func (p *Pool) pauseCauseLocked() error {
	if p.growth.paused {
		return p.governor.lastError
	}
	return nil
}
