// Package pool gives requests places on connections to one SSP: queue, dial governor, idle and age
// rules.
//
// One pool serves one SSP on all cores. It knows no protocol: connections offer places
// (exchange.Conn), and each request acquires one. The pool prefers the idle connection that was
// used last, and the multiplexed connection with the fewest requests. If no place is free, the
// request waits in a bounded queue: first in, first out, or with server.fairness.key by its key
// (package fairqueue). Meanwhile the pool dials, within max_conns and the governor's limits.
package pool

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/cpu"

	"adbuffer/internal/machine/alarm"
	"adbuffer/internal/machine/rates"
	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/wire/exchange"
)

// Pool gives requests places on one SSP's connections. Create one with New; close it with Close.
//
//	Acquire ─── a place is free ──────────▶ Place.Do ──▶ releaseLocked
//	   │                                       ▲             │
//	   ▼                                       │             ▼
//	 queue ─────────── giveLocked ─────────────┴────── settleLocked
//	                                           │             │
//	                                           │             ▼
//	                                       addLocked ◀──── dial ◀── governor
//
// Each method that locks mu is an event. The event changes the state of the parts, and notes in due
// what that makes necessary. end settles it once, and unlocks: see settle.go.
//
// Pool joins its parts. mu lists them: each is a type with its own state. Which endpoint a request
// should go to is decided by package balancer.
type Pool struct {
	dialer  Dialer
	stats   *stats
	auto    autosize           // has its own lock
	waiters sync.Pool          // of *waiter
	wg      sync.WaitGroup     // the janitor, dials, and closes
	ctx     context.Context    // ends with Close; dials stop then
	cancel  context.CancelFunc // ends ctx
	warm    chan struct{}      // closed once min_idle connections have been open
	drained chan struct{}      // closed once the pool is closed and no place is in use
	verify  func(*Pool)        // checks the pool's state after each event; nil except in tests
	_       cpu.CacheLinePad

	// mu is never held during I/O. It guards, with their contents:
	//
	//   - conns (conns.go): the open connections (member.go) and their places. idle.go, shared.go,
	//     lifetime.go, forecast.go, probation.go and isolation.go hold their rules.
	//   - conns.endpoints (endpoint.go): the endpoints and the Balancer, except its methods that are
	//     safe for concurrent use; an endpoint's stats are atomic.
	//   - queue (queue.go, fairness.go, elsewhere.go, waiter.go): the requests that wait. Their channels are free of
	//     mu.
	//   - opts: the settings.
	//   - growth (grow.go): whether to dial. settle.go acts on it.
	//   - governor (dialgovernor.go, address.go): when and where to dial; states of addresses.
	//   - checker (checker.go): which health checks run. Their connections are theirs.
	//   - demotion, besideDialed (beside.go): HTTP/1 instead of HTTP/2 for a while; HTTP/1 beside HTTP/2.
	//   - learned, needs: what the pool has learned about idle limits and load. conns.idleRule (learned.go)
	//     applies the idle limit.
	//   - the alarms and times below, and closed.
	mu sync.Mutex

	// Each request changes the first fields of conns. They are next to each other and apart from
	// the other fields, so that another core fetches few cache lines: see BenchmarkCores.

	conns connections
	queue queue

	opts     Options
	growth   growth
	governor governor
	checker  checker
	demotion demotion
	learned  learnedIdle
	needs    needHistory

	looked time.Time // when the janitor last called Dialer.Addresses
	// besideDialed is closed when the dial beside HTTP/2 connections ends; nil if none is under way. See
	// beside.go.
	besideDialed chan struct{}
	growSoon     alarm.Alarm // calls growAgain
	reviveSoon   alarm.Alarm // calls reviveAgain
	closed       bool        // Close was called
}

// Acquire gets a place for ex, and waits for one until ex.Deadline at the latest. Errors are
// *exchange.Error with Progress NotSent: PendingFull, PendingTimeout, Deadline, ConnectFailed,
// TLSFailed, Draining, or Cancelled.
//
// A request with ex.Resent waits in front of other requests, and until its deadline. A request that
// waits for dials outlasts ex.Redials failed dials; the next failed dial fails it. Acquire sets
// ex.Redialed to the number of failed dials that the request outlasted.
//
// Acquire sets ex.Times.Queued if it is zero; a caller that has just read the clock may set it
// before, to the same effect. It sets Acquired, Ticket, Endpoint and Peer, and DNS, TCP and TLS if the
// request waited for a dial.
func (p *Pool) Acquire(ex *exchange.Exchange) (Place, error) {
	now := ex.Times.Queued
	if now.IsZero() {
		now = time.Now()
		ex.Times.Queued = now
	}
	ex.Times.DNS, ex.Times.TCP, ex.Times.TLS = 0, 0, 0
	ex.Ticket, ex.Redialed = 0, 0
	if ex.OverHTTP1 {
		return p.acquireHTTP1(ex)
	}
	return p.acquire(ex, now)
}

// acquire gets a place of any protocol for ex.
func (p *Pool) acquire(ex *exchange.Exchange, now time.Time) (Place, error) {
	p.mu.Lock()
	for again := false; ; again = true {
		how := reused
		l, w, err := p.takeLocked(ex, again, now)
		if errors.Is(err, errNoKey) {
			p.mu.Unlock()
			ex.FairKey = ex.Keyer.FairKey() | 1<<63 // not 0
			p.mu.Lock()
			l, w, err = p.takeLocked(ex, again, now)
		}
		if w == nil {
			p.settleLocked(now)
		} else {
			p.settleWaitLocked(w)
		}
		p.unlock() // before counting: other requests wait for the lock
		if !again {
			p.stats.arrivals.Inc()
		}
		switch {
		case w != nil:
			l, how, err = p.wait(w, ex)
		case err == nil:
			ex.Times.Acquired = now
		}
		if err != nil {
			ex.Times.Acquired = time.Time{}
			p.stats.refused(err, ex.Times.Queued)
			return Place{}, err
		}
		m := l.m
		// The SSP may have closed an idle connection, or sent unsolicited bytes. A multiplexed
		// connection detects this itself.
		if !m.exclusive() || m.fresh || m.conn.Idle() {
			ex.Endpoint, ex.Peer = m.ep.Name, m.addr.AddrPort
			p.stats.acquired(how, ex.Times.Acquired.Sub(ex.Times.Queued))
			return Place{l}, nil
		}
		p.stats.stale.Add(1)
		now = time.Now()
		p.mu.Lock()
		p.learned.foundClosed(m, now)
		if l.probe { // the probe was not sent
			p.conns.endpoints.SetProbe(m.ep.Endpoint, balancer.NoProbe, now)
		}
		p.queue.repay(ex.Ticket, unused)
		ex.Ticket = 0
		p.releaseLocked(m, unused)
	}
}

// takeLocked takes a free place. If no place is free, it puts ex into the queue. again says that ex
// had a place on a stale connection.
func (p *Pool) takeLocked(ex *exchange.Exchange, again bool, now time.Time) (*lease, *waiter, error) {
	if p.closed {
		return nil, nil, errDraining
	}
	isolated := ex.Isolated && p.opts.isolates()
	q := p.queueOf(isolated)
	var to choice
	w := wish{avoid: ex.Avoid, alone: ex.Alone || ex.Isolated, resent: ex.Resent, isolated: isolated}
	if ex.Refused && !isolated {
		if l, waits, err := p.takeElsewhereLocked(ex, w, now); l != nil || waits != nil || err != nil {
			return l, waits, err
		}
	}
	if q.n == 0 && (!isolated || p.conns.mayIsolate()) { // otherwise waiting requests come first
		to = p.conns.pick(w, now)
	}
	if to.m == nil {
		if q.needsKey(ex) {
			return nil, nil, errNoKey
		}
		w, err := p.enqueueLocked(ex, isolated, again)
		return nil, w, err
	}
	l := p.conns.acquire(to, ex.Alone || ex.Isolated, now)
	if to.passedOver != nil && !isolated {
		p.dialPassedOverLocked(to.passedOver, now)
	}
	if !to.m.exclusive() {
		p.conns.due |= dueGrow // half of the places may be in use now
	}
	return l, nil, nil
}

// release takes back the place of m with the ticket t, which was in use for held.
func (p *Pool) release(m *member, held time.Duration, t exchange.Ticket) {
	if held != unused {
		p.stats.hold.ObserveDuration(held)
	}
	p.mu.Lock()
	defer p.end(time.Time{})
	p.queue.repay(t, held)
	p.releaseLocked(m, held)
}

func (p *Pool) releaseLocked(m *member, held time.Duration) {
	p.conns.release(m, held)
	if p.closed && p.conns.inUse == 0 {
		close(p.drained)
	}
	switch {
	case m.conn.CloseReason() != exchange.NotClosed:
		p.drainClosedLocked(m, time.Now())
		p.conns.due |= dueGrow
	case m.draining:
		p.conns.drain(m, m.why)
		p.conns.due |= dueGrow
	default:
		if m.allowed > 0 && held != unused {
			p.conns.probation.earn(m)
		}
		p.conns.recount(m)
		if m.exclusive() {
			p.reuseLocked(m)
		} else if p.queue.n > 0 || p.queue.elsewhere != nil {
			p.conns.due |= dueServe
		}
	}
}

// reuseLocked gives an exclusive connection to the first waiter, or makes it idle.
func (p *Pool) reuseLocked(m *member) {
	q, isolated := p.nextFor(m)
	switch {
	case m.single && p.queue.n > 0 && !isolated && p.growth.full() && !p.growth.sharedFull():
		p.conns.drain(m, exchange.ClosedDrain) // to make room for a connection with more places
		p.conns.due |= dueGrow
	case m.single && p.demotion.on(time.Now()):
		p.conns.drain(m, exchange.ClosedError)
		p.conns.due |= dueGrow
	case p.unneededLocked(m.ep):
		p.conns.drain(m, exchange.ClosedDrain)
	case q.n > 0 && !m.ep.Barred():
		now := time.Now()
		p.conns.due |= dueGrow
		if why := p.conns.expired(m, now); why != exchange.NotClosed {
			p.conns.drain(m, why)
			return
		}
		p.giveLocked(choice{m: m, isolated: isolated}, waitResult{}, now)
		p.conns.endpoints.Served(m.ep.Endpoint, 1, 0)
	default:
		p.conns.keep(m)
		if p.queue.n+p.conns.isolation.queue.n > 0 { // the waiters cannot use this connection
			p.conns.due |= dueGrow
		}
	}
}

// unneededLocked reports whether a connection to e must close as soon as no place of it is in use.
func (p *Pool) unneededLocked(e *endpoint) bool {
	return p.closed || p.conns.surplus() > 0 || e.Unneeded() || p.queue.n == 0 && p.conns.endpoints.disabled(e)
}

// changed records that m offers another number of places, or has closed.
func (p *Pool) changed(m *member) {
	now := time.Now()
	p.mu.Lock()
	defer p.end(now)
	if _, open := p.conns.members[m]; !open {
		return // not added yet, or removed; addLocked checks a new connection itself
	}
	p.conns.due |= dueServe
	if m.conn.CloseReason() == exchange.NotClosed {
		p.conns.recount(m)
	} else {
		m.ep.idle.remove(m)
		if m.inUse == 0 && !m.draining {
			p.learned.closed(m, now.Sub(m.used))
		}
		p.drainClosedLocked(m, now)
	}
}

// drainClosedLocked drains m, whose connection accepts no more requests.
func (p *Pool) drainClosedLocked(m *member, now time.Time) {
	atOnce := m.requests == 0 && !m.draining && now.Sub(m.opened) < p.opts.BackoffMin
	p.conns.drain(m, m.conn.CloseReason())
	if m.ep.open == 0 {
		p.reachLocked(m.ep, now)
	}
	if m.beside {
		if m.requests == 0 && p.demotion.trying(now) {
			p.demotion.http1Failed(now)
		}
		return
	}
	if atOnce { // otherwise the pool would dial again and again without a pause
		p.governor.endedUnprocessed(m.addr, now)
		p.closedAtOnceLocked(m, now)
	}
}

// responded records that the first exchange on m got a response.
func (p *Pool) responded(m *member) {
	p.mu.Lock()
	defer p.end(time.Time{})
	p.governor.processed(m.addr)
	p.conns.due |= dueGrow
}

// avoidRefusing is how long requests prefer other connections after one has refused a request.
const avoidRefusing = 100 * time.Millisecond

// lostRace records that ex got a response after the SSP had closed a connection on which it was sent.
func (p *Pool) lostRace(ex *exchange.Exchange) {
	now := time.Now()
	p.mu.Lock()
	defer p.end(now)
	p.learned.lostRace(ex.LostAfter, now)
	ex.LostAfter = 0
}

// failed records an error of an exchange on m, for a client, that says something about the SSP.
func (p *Pool) failed(m *member, e *exchange.Error, client rates.Group) {
	now := time.Now()
	p.mu.Lock()
	defer p.end(now)
	if e.BlamesHTTP2() && p.demotableLocked(now) && p.demotion.violatedOn(m, client, now) {
		p.tryHTTP1Locked(now)
	}
	if e.Progress == exchange.NotProcessed && !e.Unsent {
		m.avoidUntil = now.Add(avoidRefusing)
	}
	if e.Progress == exchange.NotProcessed && !m.exclusive() && p.conns.probation.refused(m, now) {
		p.governor.endedUnprocessed(m.addr, now)
	}
}
