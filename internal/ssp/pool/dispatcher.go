package pool

import "time"

// dispatcher gives places to the requests that wait in the two queues: queue, and the queue of isolated
// requests. Guarded by Pool.mu.
type dispatcher struct {
	conns     *connections
	size      *size
	lender    *lender
	queue     *queue
	isolation *isolation
	do        *actions // the machine's
}

// queueOf returns the queue in which a request waits.
func (d *dispatcher) queueOf(isolated bool) *queue {
	if isolated {
		return &d.isolation.queue
	}
	return d.queue
}

// nextFor returns the queue whose first request gets m, an exclusive connection that is free.
func (d *dispatcher) nextFor(m *member) (q *queue, isolated bool) {
	if s := d.isolation; s.queue.n > 0 && d.size.mayIsolate() {
		return &s.queue, true
	}
	return d.queue, false
}

// serve gives free places to waiters, in their order.
func (d *dispatcher) serve(now time.Time) {
	d.serveIsolated(now)
	for d.queue.n > 0 {
		w := d.queue.first()
		to := d.lender.pick(wish{avoid: w.avoid, alone: w.alone, resent: w.resent}, now)
		if to.m == nil {
			break
		}
		d.give(to, waitResult{}, now) // grow dials for the queue, and so for to.passedOver
	}
}

// serveIsolated gives idle exclusive connections to isolated requests.
func (d *dispatcher) serveIsolated(now time.Time) {
	for q := &d.isolation.queue; q.n > 0 && d.size.mayIsolate(); {
		w := q.first()
		to := d.lender.pick(wish{avoid: w.avoid, resent: w.resent, isolated: true}, now)
		if to.m == nil {
			return
		}
		d.give(to, waitResult{}, now)
	}
}

// give gives a place of to.m to the first waiter, or to a later one if the first avoids its
// endpoint.
func (d *dispatcher) give(to choice, r waitResult, now time.Time) {
	m := to.m
	q := d.queueOf(to.isolated)
	w := q.first()
	if w.avoid == m.ep.Name && d.conns.endpoints.HasOther(w.avoid) {
		w = q.yield(w, m)
	}
	q.remove(w)
	d.giveTo(w, to, r, now)
}

// giveTo gives a place of to.m to w, which has left its queue.
func (d *dispatcher) giveTo(w *waiter, to choice, r waitResult, now time.Time) {
	r.lease, r.ticket = d.lender.acquire(to, w.alone, now), d.queueOf(w.isolated).pay(w)
	d.do.answer(w, r)
}

// fail ends the wait of each request for which giveUp returns an error.
func (d *dispatcher) fail(giveUp func(*waiter) error) {
	d.queue.fail(giveUp)
	d.isolation.queue.fail(giveUp)
}
