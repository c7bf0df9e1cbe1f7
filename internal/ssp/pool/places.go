package pool

import (
	"time"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/wire/exchange"
)

// take takes a free place. If no place is free, it puts ex into the queue. again says that ex
// had a place on a stale connection.
func (k *machine) take(ex *exchange.Exchange, again bool, now time.Time) (*lease, *waiter, error) {
	if k.closed {
		return nil, nil, errDraining
	}
	isolated := ex.Isolated && k.opts.isolates()
	q := k.queueOf(isolated)
	var to choice
	w := wish{avoid: ex.Avoid, alone: ex.Alone || ex.Isolated, resent: ex.Resent, isolated: isolated}
	if ex.Refused && !isolated {
		if l, waits, err := k.takeElsewhere(ex, w, now); l != nil || waits != nil || err != nil {
			return l, waits, err
		}
	}
	if q.n == 0 && (!isolated || k.conns.mayIsolate()) { // otherwise waiting requests come first
		to = k.conns.pick(w, now)
	}
	if to.m == nil {
		if q.needsKey(ex) {
			return nil, nil, errNoKey
		}
		w, err := k.enqueue(ex, isolated, again)
		return nil, w, err
	}
	l := k.conns.acquire(to, ex.Alone || ex.Isolated, now)
	if to.passedOver != nil && !isolated {
		k.dialPassedOver(to.passedOver, now)
	}
	if !to.m.exclusive() {
		k.conns.due |= dueGrow // half of the places may be in use now
	}
	return l, nil, nil
}

// giveBack takes back a place of m that was in use for held. The place goes to a waiter, or m becomes idle
// or closes. It reads the clock only if it must: most exclusive connections become idle without it.
func (k *machine) giveBack(m *member, held time.Duration) {
	k.conns.release(m, held)
	if k.closed && k.conns.inUse == 0 {
		k.do.isDrained()
	}
	switch {
	case m.conn.CloseReason() != exchange.NotClosed:
		k.drainClosed(m, time.Now())
		k.conns.due |= dueGrow
	case m.draining:
		k.conns.drain(m, m.why)
		k.conns.due |= dueGrow
	default:
		if m.allowed > 0 && held != unused {
			k.conns.probation.earn(m)
		}
		k.conns.recount(m)
		if m.exclusive() {
			k.reuse(m)
		} else if k.queue.n > 0 || k.queue.elsewhere != nil {
			k.conns.due |= dueServe
		}
	}
}

// reuse gives an exclusive connection to the first waiter, or makes it idle.
func (k *machine) reuse(m *member) {
	q, isolated := k.nextFor(m)
	switch {
	case m.single && k.queue.n > 0 && !isolated && k.growth.full() && !k.growth.sharedFull():
		k.conns.drain(m, exchange.ClosedDrain) // to make room for a connection with more places
		k.conns.due |= dueGrow
	case m.single && k.demotion.on(time.Now()):
		k.conns.drain(m, exchange.ClosedError)
		k.conns.due |= dueGrow
	case k.unneeded(m.ep):
		k.conns.drain(m, exchange.ClosedDrain)
	case q.n > 0 && !m.ep.Barred():
		now := time.Now()
		k.conns.due |= dueGrow
		if why := k.conns.expired(m, now); why != exchange.NotClosed {
			k.conns.drain(m, why)
			return
		}
		k.give(choice{m: m, isolated: isolated}, waitResult{}, now)
		k.conns.endpoints.Served(m.ep.Endpoint, 1, 0)
	default:
		k.conns.keep(m)
		if k.queue.n+k.conns.isolation.queue.n > 0 { // the waiters cannot use this connection
			k.conns.due |= dueGrow
		}
	}
}

// unneeded reports whether a connection to e must close as soon as no place of it is in use.
func (k *machine) unneeded(e *endpoint) bool {
	return k.closed || k.conns.surplus() > 0 || e.Unneeded() || k.queue.n == 0 && k.conns.endpoints.disabled(e)
}

// drainClosed drains m, whose connection accepts no more requests.
func (k *machine) drainClosed(m *member, now time.Time) {
	atOnce := m.requests == 0 && !m.draining && now.Sub(m.opened) < k.opts.BackoffMin
	k.conns.drain(m, m.conn.CloseReason())
	if m.ep.open == 0 {
		k.reach(m.ep, now)
	}
	if m.beside {
		if m.requests == 0 && k.demotion.trying(now) {
			k.demotion.http1Failed(now)
		}
		return
	}
	if atOnce { // otherwise the pool would dial again and again without a pause
		k.governor.endedUnprocessed(m.addr, now)
		k.closedAtOnce(m, now)
	}
}

// enqueue puts ex into its queue. again says that ex had a place on a stale connection.
func (k *machine) enqueue(ex *exchange.Exchange, isolated, again bool) (*waiter, error) {
	now := time.Now()
	if !now.Before(ex.Deadline) {
		return nil, exchange.ErrDeadlineNotSent
	}
	w := k.newWaiter()
	w.begin(ex, again, &k.opts, now)
	w.isolated = isolated
	k.queueOf(isolated).push(w, now)
	k.do.wake(w, w.until(now))
	k.conns.due |= dueGrow
	return w, nil
}

// settleWait settles the arrival of w, a new waiter, and counts w if it waits because of a limit.
func (k *machine) settleWait(w *waiter, now time.Time) {
	k.settle(now)
	if !w.elsewhere && w.pending && !w.isolated && k.growth.atLimit() {
		k.stats.limitWaits.Add(1)
	}
}

// give gives a place of to.m to the first waiter, or to a later one if the first avoids its
// endpoint.
func (k *machine) give(to choice, r waitResult, now time.Time) {
	m := to.m
	q := k.queueOf(to.isolated)
	w := q.first()
	if w.avoid == m.ep.Name && k.conns.endpoints.HasOther(w.avoid) {
		w = q.yield(w, m)
	}
	q.remove(w)
	k.giveTo(w, to, r, now)
}

// giveTo gives a place of to.m to w, which has left its queue.
func (k *machine) giveTo(w *waiter, to choice, r waitResult, now time.Time) {
	r.lease, r.ticket = k.conns.acquire(to, w.alone, now), k.queueOf(w.isolated).pay(w)
	k.do.answer(w, r)
}

func (k *machine) full() queueFull {
	return queueFull{
		load: k.conns.load(), conns: len(k.conns.members) + k.governor.dialing, connsLimit: k.conns.limit(),
		pending: k.queue.pending, maximum: k.opts.MaxPending, settings: k.conns.placeSettings(), fair: k.queue.fair != nil,
		cause: k.pauseCause(),
	}
}

// pauseCause returns why the pool opens no connection, or nil if nothing prevents it.
func (k *machine) pauseCause() error {
	if k.growth.paused {
		return k.governor.lastError
	}
	return nil
}

// dropChecked drops a checked connection if it is closed or not needed, and reports whether it
// did.
func (k *machine) dropChecked(m *member, now time.Time) (dropped bool) {
	switch {
	case m.draining: // drained during the check
	case m.conn.CloseReason() != exchange.NotClosed:
		k.learned.sweptClosed(m, now.Sub(m.used))
		k.drainClosed(m, now)
	case k.unneeded(m.ep):
		k.conns.drain(m, exchange.ClosedDrain)
	default:
		return false
	}
	return true
}

// connChanged records that m offers another number of places, or has closed.
func (k *machine) connChanged(m *member, now time.Time) {
	if _, open := k.conns.members[m]; !open {
		return // not added yet, or removed; add checks a new connection itself
	}
	k.conns.due |= dueServe
	if m.conn.CloseReason() == exchange.NotClosed {
		k.conns.recount(m)
		return
	}
	m.ep.idle.remove(m)
	if m.inUse == 0 && !m.draining {
		k.learned.closed(m, now.Sub(m.used))
	}
	k.drainClosed(m, now)
}

// avoidRefusing is how long requests prefer other connections after one has refused a request.
const avoidRefusing = 100 * time.Millisecond

// exchangeFailed records an error of an exchange on m, for a client, that says something about the SSP.
func (k *machine) exchangeFailed(m *member, e *exchange.Error, client rates.Group, now time.Time) {
	if e.BlamesHTTP2() && k.demotable(now) && k.demotion.violatedOn(m, client, now) {
		k.tryHTTP1(now)
	}
	if e.Progress == exchange.NotProcessed && !e.Unsent {
		m.avoidUntil = now.Add(avoidRefusing)
	}
	if e.Progress == exchange.NotProcessed && !m.exclusive() && k.conns.probation.refused(m, now) {
		k.governor.endedUnprocessed(m.addr, now)
	}
}

// foundClosed takes back the place of ex, whose connection the SSP had closed before ex was sent.
func (k *machine) foundClosed(l *lease, ex *exchange.Exchange, now time.Time) {
	k.learned.foundClosed(l.m, now)
	if l.probe {
		k.conns.probes.notSent(l.m.ep, now)
	}
	k.queue.repay(ex.Ticket, unused)
	ex.Ticket = 0
	k.giveBack(l.m, unused)
}
