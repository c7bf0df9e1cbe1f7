package pool

import (
	"cmp"
	"errors"
	"time"

	"adbuffer/internal/machine/lag"
	"adbuffer/internal/machine/rates"
	"adbuffer/internal/wire/exchange"
)

// lookedUp records a look-up for a dial, and picks the address of the dial. failures is the value of
// governor.lookup.failures when the look-up began.
func (k *machine) lookedUp(want aim, addrs []exchange.Address, err error, failures int, now time.Time) (to target, _ error) {
	switch {
	case k.conns.closed:
		k.governor.undecided--
		return to, errDraining
	case err == nil && len(addrs) == 0:
		err = errNoAddress
	}
	if err == nil && len(k.governor.known) > 0 {
		k.changes.follow(addrs, false, now)
	}
	k.governor.lookedUp(addrs, err, failures, now)
	if err != nil {
		return to, err
	}
	to, ok := k.governor.pick(now, k.growth.mayTry(), want)
	if !ok {
		return to, errNotNow
	}
	if to.onTrial {
		k.conns.due |= dueGrow // another address may be healthy
	}
	return to, nil
}

// dialOutcome says how a dial ended.
type dialOutcome struct {
	to      target        // the address that the governor picked; zero if it picked none
	reached target        // the address of the connection, or that err is about
	lost    []error       // Dialed.Lost
	took    dialDurations // of the look-up and the dial
	err     error         // nil if o.m has a connection
}

// dialOver records how a dial ended. It adds its connection, or counts the failure.
func (k *machine) dialOver(o dialOrder, r dialOutcome, now time.Time) {
	m, to := o.m, r.to
	k.conns.due |= dueGrow | dueElsewhere
	k.governor.ended(to, o.to, o.offerHTTP2)
	if o.to.isolated {
		k.isolation.dialing--
	}
	if m.beside {
		k.do.besideOver(k.beside.dialed)
		k.beside.dialed = nil
	}
	k.addressesLost(to, r.lost, now)
	if r.err == nil {
		if m.conn.CloseReason() == exchange.NotClosed {
			k.governor.connected(r.reached, now)
		} else if !m.beside {
			k.governor.addressFailed(r.reached, nil, k.queue.hasRedials(), now)
		}
		k.add(m, o.to, r.took, now)
	} else {
		k.dialFailed(o, r, now)
	}
	if e := cmp.Or(to.endpoint, o.to.endpoint); e != nil {
		k.changes.updateReachable(e, now)
		if k.probes.dialEnded(e, r.err, now) {
			k.conns.due |= dueRevive
		}
	}
}

// dialFailed records a dial that brought no connection.
func (k *machine) dialFailed(o dialOrder, r dialOutcome, now time.Time) {
	e, err := r.to.endpoint, r.err
	switch {
	case k.conns.closed, errors.Is(err, errNotNow), errors.Is(err, lag.ErrTooMuch):
	case o.m.beside && !isLocal(err):
		if e != nil {
			e.stats.dialFailed(err)
		}
		k.demotion.http1Failed(now)
	case !o.offerHTTP2 && k.demotion.on(now) && errors.Is(err, exchange.ErrALPN): // the SSP speaks only HTTP/2
		k.noteDialError(e, err)
		k.demotion.restore(now)
	case o.offerHTTP2 && exchange.AsError(err).BlamesHTTP2() && k.demotion.possible(now): // the address may work over HTTP/1
		k.noteDialError(e, err)
		k.demotion.demote(now)
	default:
		k.conns.due |= dueFail
		k.governor.addressFailed(r.reached, err, k.queue.hasRedials(), now)
		k.noteDialError(e, err)
		k.conns.shared.replace = false
		if e != nil && !isLocal(err) {
			k.changes.apply(e, k.conns.endpoints.DialFailed(e.Endpoint, now))
		}
	}
}

// addressesLost records the addresses of a dial that failed or were slow while another one was
// reached. They do not count as failures of the endpoint.
func (k *machine) addressesLost(to target, lost []error, now time.Time) {
	for i, err := range lost {
		if err != nil && !errors.Is(err, lag.ErrTooMuch) {
			to.endpoint.stats.dialFailed(err)
			k.governor.addressFailed(to.nth(i), err, false, now)
		}
	}
}

// add adds a new connection, whose dial had the given aim, and gives its places to waiters.
func (k *machine) add(m *member, to aim, took dialDurations, now time.Time) {
	k.conns.add(m, now)
	switch {
	case k.unneeded(m.ep):
		k.conns.drain(m, exchange.ClosedDrain)
		return
	case m.conn.CloseReason() != exchange.NotClosed:
		k.conns.drain(m, m.conn.CloseReason())
		k.closedAtOnce(m, now)
		k.conns.due |= dueFail
		return
	case m.protocol == exchange.HTTP2 && k.opts.Protocol == exchange.Unknown && k.demotion.on(now):
		k.conns.drain(m, exchange.ClosedError) // the dial began before the demotion
		return
	}
	m.ep.dialError = nil
	k.conns.serve(m)
	if m.beside {
		k.beside.add(m, now)
		return
	}
	if m.ep.open == 1 && m.ep.Active() {
		k.changes.drainInactive()
	}
	r := waitResult{dialed: true, took: took}
	before := k.queue.n + k.isolation.queue.n
	switch {
	case k.probes.awaitsDial(m.ep):
		k.probeOn(m, r, now)
	case m.ep.Barred() && !m.exclusive():
		k.conns.drain(m, exchange.ClosedDrain)
	case !m.exclusive():
		k.elsewhere.giveNew(m, r, now)
		for k.queue.n > 0 && m.takes(k.queue.first().alone) {
			k.dispatcher.give(choice{m: m}, r, now)
		}
		k.pruner.expireShared(now) // an old connection may have waited for this one
	case !to.isolated && k.elsewhere.waiters != nil && k.elsewhere.giveNew(m, r, now):
	default:
		if q, isolated := k.dispatcher.nextFor(m); q.n > 0 && !m.ep.Barred() {
			m.fresh = true
			k.dispatcher.give(choice{m: m, isolated: isolated}, r, now)
		} else {
			k.reuse(m)
		}
	}
	turns := 0
	if to.waiting {
		turns = 1
	}
	k.conns.endpoints.Served(m.ep.Endpoint, before-k.queue.n-k.isolation.queue.n, turns)
	k.changes.noteWarm()
}

// probeOn makes the next request on m, a new connection, the probe of its ejected endpoint.
func (k *machine) probeOn(m *member, r waitResult, now time.Time) {
	if k.queue.n > 0 && (m.exclusive() || m.takes(k.queue.first().alone)) {
		k.probes.sent(m.ep, now)
		m.fresh = m.exclusive()
		k.dispatcher.give(choice{m: m, probe: true}, r, now)
		return
	}
	if m.exclusive() {
		m.ep.idle.push(m) // even if max_idle is 0
	}
	k.probes.ready(m.ep, now)
}

// closedAtOnce records that the SSP closed m before any use, and treats it like a failed
// dial. If m was an HTTP/2 connection, the SSP may not support HTTP/2. If m is an HTTP/1 connection of a
// demotion, the SSP may support only HTTP/2.
func (k *machine) closedAtOnce(m *member, now time.Time) {
	k.noteDialError(m.ep, exchange.Errorf(exchange.ConnectFailed, exchange.NotSent, "%v: the SSP closed the new connection at once", m.addr))
	switch {
	case m.beside:
		k.demotion.http1Failed(now)
	case m.protocol == exchange.HTTP1 && k.opts.Protocol == exchange.Unknown && k.demotion.on(now):
		k.demotion.restore(now)
	case m.protocol == exchange.HTTP2 && k.demotion.possible(now) && k.demotion.violated(rates.Ours, now):
		k.demotion.demote(now)
	}
}

// noteDialError counts the error of a dial to e. If e is nil, it counts the error of a
// look-up.
func (k *machine) noteDialError(e *endpoint, err error) {
	if e == nil {
		e = k.conns.endpoints.lookedUpFor(err)
	}
	e.stats.dialFailed(err)
	e.dialError = err
	k.governor.setLastError(err)
}
