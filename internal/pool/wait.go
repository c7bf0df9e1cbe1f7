package pool

import (
	"context"
	"fmt"
	"time"

	"adbuffer/internal/upstream"
)

// waiter is a request that waits for a place.
type waiter struct {
	// ready receives the place or the error, once, when the waiter leaves the
	// queue by another's hand. Capacity 1, so that nobody blocks on it.
	ready chan served

	// guarded by pool.mu

	prev, next *waiter // nil outside the queue
	queued     bool
	covered    bool // see queue
	front      bool // had a place already
	alone      bool // see upstream.Exchange
	resent     bool // see upstream.Exchange
	redials    int  // see upstream.Exchange

	// timer fires when the waiter should look whether its time is over. It may
	// fire too early, never too late.
	timer    *time.Timer
	armed    bool
	deadline time.Time
	since    time.Time     // covered is what it is since then
	forDial  time.Duration // what it may still wait while covered
	forPlace time.Duration // what it may still wait while not covered
}

// served is what a waiter gets.
type served struct {
	m       *member // nil where it gets no place
	err     error
	crowded crowd // in place of err: the queue has no room for it
	dialed  bool  // m was opened just now
	took    dialDurations
}

type dialDurations struct{ dns, tcp, tls time.Duration }

func newWaiter() *waiter {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &waiter{ready: make(chan served, 1), timer: t}
}

// setCovered changes what the waiter waits for, and so for how long.
func (w *waiter) setCovered(covered bool, now time.Time) {
	*w.left() -= now.Sub(w.since)
	w.covered, w.since = covered, now
	if w.armed {
		w.arm(now)
	}
}

// extend lets the waiter wait for another dial, for as long as forDial.
func (w *waiter) extend(forDial time.Duration, now time.Time) {
	w.setCovered(w.covered, now) // what it has waited so far is taken off
	w.forDial = forDial
	if w.armed {
		w.arm(now)
	}
}

func (w *waiter) left() *time.Duration {
	if w.covered {
		return &w.forDial
	}
	return &w.forPlace
}

func (w *waiter) arm(now time.Time) {
	w.armed = true
	w.timer.Reset(min(*w.left()-now.Sub(w.since), w.deadline.Sub(now)))
}

// waitLocked queues ex and waits for a place. It unlocks p.mu. again: ex was
// lent a stale connection, and has its turn once more.
func (p *Pool) waitLocked(ex *upstream.Exchange, again bool) (*member, acquireOutcome, error) {
	now := time.Now()
	if !now.Before(ex.Deadline) {
		p.mu.Unlock()
		return nil, timedOut, upstream.ErrDeadlineNotSent
	}
	w := p.waiters.Get().(*waiter)
	defer p.waiters.Put(w)
	w.deadline, w.since, w.armed, w.alone, w.resent, w.redials = ex.Deadline, now, false, ex.Alone, ex.Resent, ex.Redials
	w.forDial, w.forPlace = p.opts.waitForDial(), p.opts.PendingTimeout
	if w.resent { // until its deadline
		w.forDial = w.deadline.Sub(now)
		w.forPlace = w.forDial
	}
	if w.front = again || w.resent; w.front {
		p.queue.pushFront(w)
	} else {
		p.queue.pushBack(w)
	}
	p.growLocked(now)
	if w.queued {
		w.arm(now)
	}
	p.mu.Unlock()

	s := p.await(w, ex.Context)
	ex.Redials = w.redials
	if s.m == nil && s.err == nil {
		s.err = s.crowded.error()
	}
	if s.err != nil {
		return nil, timedOut, s.err
	}
	ex.Times.Lent = time.Now()
	if !s.dialed {
		return s.m, waited, nil
	}
	ex.Times.DNS, ex.Times.TCP, ex.Times.TLS = s.took.dns, s.took.tcp, s.took.tls
	return s.m, dialed, nil
}

// await returns what w is served, or why it waits no more. w is outside the
// queue then, its channel empty and its timer stopped.
func (p *Pool) await(w *waiter, ctx context.Context) served {
	var cancelled <-chan struct{}
	if ctx != nil {
		cancelled = ctx.Done()
	}
	for {
		var err error
		select {
		case s := <-w.ready:
			w.timer.Stop()
			return s
		case <-cancelled:
			err = errCancelled
		case <-w.timer.C:
		}
		p.mu.Lock()
		if !w.queued {
			// Served in the same instant: the race falls to the place.
			p.mu.Unlock()
			w.timer.Stop()
			return <-w.ready
		}
		now := time.Now()
		if err == nil {
			err = p.overdueLocked(w, now)
		}
		if err == nil {
			w.arm(now)
			p.mu.Unlock()
			continue
		}
		p.queue.remove(w)
		w.timer.Stop()
		p.settleLocked(now)
		p.mu.Unlock()
		return served{err: err}
	}
}

// overdueLocked says why w may wait no longer, or nil where it may.
func (p *Pool) overdueLocked(w *waiter, now time.Time) error {
	switch {
	case !now.Before(w.deadline):
		return upstream.ErrDeadlineNotSent
	case now.Sub(w.since) < *w.left():
		return nil
	case w.covered:
		return &upstream.Error{
			Outcome: upstream.ConnectFailed, Progress: upstream.NotSent,
			Detail: fmt.Sprintf("no connection was ready within %v; see timeouts.connect and timeouts.tls_handshake", p.opts.dialLimit()),
		}
	default:
		return &upstream.Error{
			Outcome: upstream.PendingTimeout, Progress: upstream.NotSent,
			Detail: fmt.Sprintf("no place was free within %v; see pool.max_conns and pool.pending_timeout", p.opts.PendingTimeout),
		}
	}
}

var errCancelled = &upstream.Error{Outcome: upstream.Cancelled, Progress: upstream.NotSent}

// serveLocked lends what is free to those who wait, in their order, and opens
// more for those who are left.
func (p *Pool) serveLocked(now time.Time) {
	for p.queue.n > 0 {
		m := p.leastBusyLocked(p.queue.head.alone)
		if m == nil {
			if m = p.popIdleLocked(now); m == nil {
				break
			}
		}
		p.handLocked(m, now, served{})
	}
	p.growLocked(now)
}

// handLocked lends a place of m to the first in the queue.
func (p *Pool) handLocked(m *member, now time.Time, s served) {
	w := p.queue.head
	p.queue.remove(w)
	p.lendLocked(m, w.alone, now)
	s.m = m
	w.ready <- s
}

// settleLocked sees to it that as many are covered as dials will serve, and
// that no more wait beyond those than may: the last to come is the first to go.
// Requests that are sent again stay: they are few, and were let in before.
func (p *Pool) settleLocked(now time.Time) {
	p.queue.cover(p.coverLocked(), now)
	for p.opts.MaxPending >= 0 && p.queue.beyond > p.opts.MaxPending && !p.queue.tail.resent {
		w := p.queue.tail
		p.queue.remove(w)
		w.ready <- served{crowded: p.crowdLocked()}
	}
}

// failLocked ends the waits of those requests that give up, with an error of
// their own.
func (p *Pool) failLocked(giveUp func(*waiter) error) {
	for w := p.queue.head; w != nil; {
		next := w.next
		if err := giveUp(w); err != nil {
			p.queue.remove(w)
			w.ready <- served{err: err}
		}
		w = next
	}
}
