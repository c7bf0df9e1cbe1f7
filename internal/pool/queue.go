package pool

import (
	"fmt"
	"sync"
	"time"

	"adbuffer/internal/upstream"
)

// waiter is a request that waits for a place.
type waiter struct {
	// ready receives the place or the error, once, when the waiter leaves the
	// queue by another's hand. Capacity 1, so that nobody blocks on it.
	ready chan served
	timer *time.Timer

	prev, next *waiter // guarded by pool.mu, nil outside the queue
	queued     bool    // guarded by pool.mu
}

type served struct {
	m      *member
	err    error
	dialed *member       // m, where it was opened just now
	took   dialDurations // of that dial
}

type dialDurations struct{ dns, tcp, tls time.Duration }

var waiters = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &waiter{ready: make(chan served, 1), timer: t}
}}

// queue is first in, first out. All of it is guarded by pool.mu.
type queue struct {
	head, tail *waiter
	n          int
	beyond     int // of n, those whom the dials under way will not serve; as of the last count
}

func (q *queue) len() int { return q.n }

func (q *queue) pushBack(w *waiter) {
	w.prev, w.next, w.queued = q.tail, nil, true
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
	q.n++
}

// pushFront is for a waiter that had a place already, which turned out stale.
func (q *queue) pushFront(w *waiter) {
	w.prev, w.next, w.queued = nil, q.head, true
	if q.head == nil {
		q.tail = w
	} else {
		q.head.prev = w
	}
	q.head = w
	q.n++
}

func (q *queue) remove(w *waiter) {
	if w.prev == nil {
		q.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.queued = nil, nil, false
	q.n--
}

func (q *queue) popFront() *waiter {
	w := q.head
	if w != nil {
		q.remove(w)
	}
	return w
}

// waitLocked queues ex and waits for a place. It unlocks p.mu. newcomer is
// false for a request that was lent a stale connection and has its turn again.
func (p *Pool) waitLocked(ex *upstream.Exchange, now time.Time, newcomer bool) (*member, error) {
	w := waiters.Get().(*waiter)
	defer waiters.Put(w)
	if newcomer {
		p.queue.pushBack(w)
	} else {
		p.queue.pushFront(w)
	}
	p.growLocked(now)
	if !w.queued { // growLocked found that there is nothing to wait for
		s := <-w.ready
		p.mu.Unlock()
		p.stats.acquired(timedOut, time.Since(ex.Times.Queued))
		return nil, s.err
	}
	covered := p.queue.n <= p.comingLocked()
	p.countBeyondLocked()
	if !covered && newcomer && p.opts.MaxPending >= 0 && p.queue.beyond > p.opts.MaxPending {
		p.queue.remove(w)
		p.countBeyondLocked()
		err := p.fullErrorLocked()
		p.mu.Unlock()
		p.stats.acquired(full, 0)
		return nil, err
	}
	limit := p.opts.PendingTimeout
	if covered {
		limit = p.opts.ConnectTimeout + p.opts.TLSTimeout
	}
	p.mu.Unlock()

	untilDeadline := ex.Deadline.Sub(now)
	w.timer.Reset(min(limit, untilDeadline))
	var cancelled <-chan struct{}
	if ex.Context != nil {
		cancelled = ex.Context.Done()
	}
	var err error
	select {
	case s := <-w.ready:
		w.timer.Stop()
		return p.served(ex, s)
	case <-cancelled:
		w.timer.Stop()
		err = upstream.ErrCancelled
	case <-w.timer.C:
		switch {
		case untilDeadline <= limit:
			err = upstream.ErrDeadlineNotSent
		case covered:
			err = &upstream.Error{
				Outcome: upstream.PendingTimeout, Progress: upstream.NotSent,
				Detail: fmt.Sprintf("no connection was ready within %v; see timeouts.connect and timeouts.tls_handshake", limit),
			}
		default:
			err = &upstream.Error{
				Outcome: upstream.PendingTimeout, Progress: upstream.NotSent,
				Detail: fmt.Sprintf("no place was free within %v; see pool.max_conns and pool.pending_timeout", limit),
			}
		}
	}
	p.mu.Lock()
	if w.queued {
		p.queue.remove(w)
		p.countBeyondLocked()
		p.mu.Unlock()
		p.stats.acquired(timedOut, time.Since(ex.Times.Queued))
		return nil, err
	}
	// It was served in the same instant: the race falls to the place.
	p.mu.Unlock()
	return p.served(ex, <-w.ready)
}

// served takes what the queue gave.
func (p *Pool) served(ex *upstream.Exchange, s served) (*member, error) {
	ex.Times.Lent = time.Now()
	waited := ex.Times.Lent.Sub(ex.Times.Queued)
	switch {
	case s.err != nil:
		ex.Times.Lent = time.Time{}
		p.stats.acquired(timedOut, waited)
		return nil, s.err
	case s.dialed != nil:
		ex.Times.DNS, ex.Times.TCP, ex.Times.TLS = s.took.dns, s.took.tcp, s.took.tls
		p.stats.acquired(dialed, waited)
	default:
		p.stats.acquired(waitedFor, waited)
	}
	return s.m, nil
}

// serveLocked lends what is free to those who wait, in their order.
func (p *Pool) serveLocked(now time.Time) {
	for p.queue.n > 0 {
		m := p.leastBusyLocked()
		for m == nil && len(p.idle) > 0 {
			n := len(p.idle) - 1
			m, p.idle = p.idle[n], p.idle[:n]
			if r := p.expiredLocked(m, now); r != upstream.NotClosed {
				p.retireLocked(m, r)
				m = nil
			}
		}
		if m == nil {
			break
		}
		p.handLocked(m, now, served{m: m})
	}
	p.countBeyondLocked()
	p.growLocked(now)
}

// handLocked lends a place of m to the first in the queue.
func (p *Pool) handLocked(m *member, now time.Time, s served) {
	w := p.queue.popFront()
	p.lendLocked(m, now)
	w.ready <- s
}

// failAllLocked ends all waits with err.
func (p *Pool) failAllLocked(err error) {
	for w := p.queue.popFront(); w != nil; w = p.queue.popFront() {
		w.ready <- served{err: err}
	}
	p.countBeyondLocked()
}

// countBeyondLocked counts those who wait for more than the dials under way.
func (p *Pool) countBeyondLocked() { p.queue.beyond = max(0, p.queue.n-p.comingLocked()) }
