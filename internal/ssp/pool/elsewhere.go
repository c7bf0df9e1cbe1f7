package pool

import (
	"slices"
	"time"

	"adbuffer/internal/wire/exchange"
)

// elsewhere holds refused requests that wait for a dial to another endpoint, since the endpoint that refused them
// will likely refuse them again. A refused request waits here only if no other active endpoint has a free place, and
// a dial to one of them is under way or may start:
//
//	refused ──▶ elsewhere ── a place at another endpoint ──▶ Place.Do
//	                 │
//	                 └── no dial succeeds in time ──▶ a place at any endpoint, or the queue
//
// The requests behind it do not wait: they may use the endpoint that refused it. Guarded by Pool.mu.
type elsewhere struct {
	opts       *Options // the pool's
	conns      *connections
	size       *size
	lender     *lender
	dispatcher *dispatcher
	queue      *queue
	dials      *dials
	newWaiter  func() *waiter
	do         *actions // the machine's

	waiters []*waiter // oldest first; nil if no request waits. They are in no queue.
}

// take finds a place for ex, which an endpoint refused, at another active endpoint. Without a free place
// ex waits for a dial, if one is under way or may start. Otherwise all results are nil. The error is errNoKey if ex
// must tell its key before it waits.
func (e *elsewhere) take(ex *exchange.Exchange, w wish, now time.Time) (*lease, *waiter, error) {
	beside := e.conns.endpoints.Next(ex.Avoid).Beside
	if ex.Avoid == "" || beside == nil {
		return nil, nil, nil
	}
	if m := e.lender.pickAvoiding(e.conns.endpoints.all[beside.Index], w, now); m != nil {
		return e.lender.acquire(choice{m: m}, ex.Alone, now), nil, nil
	}
	// ex waits here for at most half of its remaining time; the rest is left for a place of any endpoint.
	until := now.Add(ex.Deadline.Sub(now) / 2)
	switch {
	case e.queue.needsKey(ex):
		return nil, nil, errNoKey
	case !now.Before(until) || !e.dial(ex.Avoid, beside.Index, now):
		return nil, nil, nil
	}
	waits := e.newWaiter()
	waits.begin(ex, false, e.opts, now)
	waits.queued, waits.inElsewhere, waits.pending = true, true, false
	e.waiters = append(e.waiters, waits)
	e.do.wake(waits, until)
	return nil, waits, nil
}

// dial reports whether dials to active endpoints other than the endpoint to avoid will likely bring a place
// for one more request. It starts a dial if necessary and possible. first is the index of the endpoint to try first.
func (e *elsewhere) dial(avoid string, first int, now time.Time) bool {
	all := e.conns.endpoints.all
	spare := -len(e.waiters)
	for _, other := range all {
		if other.Active() && other.Name != avoid {
			spare += other.dialing * e.size.perConn()
		}
	}
	if spare > 0 {
		return true
	}
	for i := range all {
		other := all[(first+i)%len(all)]
		if other.Active() && other.Name != avoid && e.dials.forRequest(other, now) {
			return true
		}
	}
	return false
}

// giveNew gives places of m, which was just dialled, to the waiting requests that m's endpoint has not refused. It
// reports whether a request got a place.
func (e *elsewhere) giveNew(m *member, r waitResult, now time.Time) (given bool) {
	if !m.ep.Active() {
		return false
	}
	for i := 0; i < len(e.waiters); {
		w := e.waiters[i]
		if w.avoid == m.ep.Name || m.exclusive() && given || !m.exclusive() && !m.takes(w.alone) {
			i++
			continue
		}
		m.fresh, given = m.exclusive(), true
		e.leave(w)
		e.dispatcher.giveTo(w, choice{m: m}, r, now)
	}
	return given
}

// serve gives free places to the waiting requests, at endpoints that have not refused them.
func (e *elsewhere) serve(now time.Time) {
	without := "" // requests that avoid this endpoint get no place
	for i := 0; i < len(e.waiters); {
		w := e.waiters[i]
		if w.avoid == without {
			i++
			continue
		}
		to := e.lender.pick(wish{avoid: w.avoid, alone: w.alone, resent: w.resent, mustAvoid: true}, now)
		if to.m == nil {
			without = w.avoid
			continue
		}
		e.leave(w)
		e.dispatcher.giveTo(w, to, waitResult{}, now)
	}
}

// endWithoutDial ends, after a dial, the wait of the requests for which no further dial is under way.
func (e *elsewhere) endWithoutDial(now time.Time) {
	for i := 0; i < len(e.waiters); {
		w := e.waiters[i]
		if slices.ContainsFunc(e.conns.endpoints.all, func(other *endpoint) bool { return other.dialing > 0 && other.Name != w.avoid }) {
			i++
			continue
		}
		e.end(w, now)
	}
}

// end ends the wait of w for another endpoint: w waits in the queue for a place of any endpoint.
func (e *elsewhere) end(w *waiter, now time.Time) {
	e.leave(w)
	e.queue.push(w, now)
	e.do.wake(w, w.until(now))
	e.conns.due |= dueServe
}

// leave removes w.
func (e *elsewhere) leave(w *waiter) {
	i := slices.Index(e.waiters, w)
	e.waiters = slices.Delete(e.waiters, i, i+1)
	if len(e.waiters) == 0 {
		e.waiters = nil
	}
	w.inElsewhere, w.queued = false, false
}

// fail ends the wait of all requests with err.
func (e *elsewhere) fail(err error) {
	for len(e.waiters) > 0 {
		w := e.waiters[0]
		e.leave(w)
		e.do.answer(w, waitResult{err: err})
	}
}
