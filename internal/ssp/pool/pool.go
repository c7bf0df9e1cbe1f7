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
	"adbuffer/internal/wire/exchange"
)

// Pool gives requests places on one SSP's connections. Create one with New; close it with Close.
//
//	Acquire ─── a place is free ──────────▶ Place.Do ──▶ giveBack
//	   │                                       ▲             │
//	   ▼                                       │             ▼
//	 queue ───────────── give ─────────────────┴────────── settle
//	                                           │             │
//	                                           │             ▼
//	                                          add ◀─ dial ◀─ governor
//
// Pool is the shell of a machine, which holds the rules. Each method that locks mu tells the machine one
// event, and ends with end: the machine settles what the event made necessary, and Pool does what the
// machine decided. ARCHITECTURE.md has the events, the parts and four courses. Which endpoint a request
// should go to is decided by package balancer.
type Pool struct {
	dialer  Dialer
	stats   *stats             // the machine's
	auto    autosizer          // has its own lock
	waiters sync.Pool          // of *waiter
	wg      sync.WaitGroup     // the janitor, dials, and closes
	ctx     context.Context    // ends with Close; dials stop then
	cancel  context.CancelFunc // ends ctx
	isWarm  chan struct{}      // closed once min_idle connections have been open
	emptied chan struct{}      // closed once the pool is closed and no place is in use
	verify  func(*Pool)        // checks the pool's state after each event; nil except in tests
	_       cpu.CacheLinePad

	// mu is never held during I/O. It guards all fields below, except the waiters' channels, the
	// endpoints' stats, demotion.responded, and the methods of the Balancer that are safe for concurrent
	// use.
	mu sync.Mutex

	machine
	checker    checker     // which health checks run. Their connections are theirs.
	growSoon   alarm.Alarm // calls growAgain
	reviveSoon alarm.Alarm // calls reviveAgain
}

// Acquire gets a place for ex, and waits for one until ex.Deadline at the latest. Errors are
// *exchange.Error with Progress NotSent: PendingFull, PendingTimeout, Deadline, ConnectFailed,
// TLSFailed, Draining, or Cancelled.
//
// A request with ex.Resent waits in front of other requests, and until its deadline. A request that
// waits for dials outlasts ex.Redials failed dials, as long as an address may be dialled; the next failed dial fails it. Acquire sets
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
		l, w, err := p.take(ex, again, now)
		if errors.Is(err, errNoKey) {
			p.end(now)                              // a stale connection that was found before may have made a dial due
			ex.FairKey = ex.Keyer.FairKey() | 1<<63 // not 0
			p.mu.Lock()
			l, w, err = p.take(ex, again, now)
		}
		if w == nil {
			p.settle(now)
		} else {
			p.settleWait(w, time.Now())
		}
		p.finish() // before counting: other requests wait for the lock
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
		p.foundClosed(l, ex, now)
	}
}

// release takes back the place of m with the ticket t, which was in use for held.
func (p *Pool) release(m *member, held time.Duration, t exchange.Ticket) {
	if held != unused {
		p.stats.hold.ObserveDuration(held)
	}
	p.mu.Lock()
	defer p.end(time.Time{})
	p.queue.repay(t, held)
	p.giveBack(m, held)
}

// changed records that m offers another number of places, or has closed.
func (p *Pool) changed(m *member) {
	now := time.Now()
	p.mu.Lock()
	defer p.end(now)
	p.connChanged(m, now)
}

// responded records that the first exchange on m got a response.
func (p *Pool) responded(m *member) {
	p.mu.Lock()
	defer p.end(time.Time{})
	p.governor.processed(m.addr)
	p.conns.due |= dueGrow
}

// lostRace records that ex got a response after the SSP had closed a connection on which it was sent.
func (p *Pool) lostRace(ex *exchange.Exchange) {
	now := time.Now()
	p.mu.Lock()
	defer p.end(now)
	p.learned.lostRace(ex.LostAfter, now)
	ex.LostAfter = 0
}

// exchangeFailed records an error of an exchange on m, for a client, that says something about the SSP.
func (p *Pool) exchangeFailed(m *member, e *exchange.Error, client rates.Group) {
	now := time.Now()
	p.mu.Lock()
	defer p.end(now)
	p.machine.exchangeFailed(m, e, client, now)
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
		case <-w.ready:
			w.timer.Stop()
			return w.result
		case <-cancelled:
			err = errCancelled
		case <-w.timer.C:
		}
		p.mu.Lock()
		if !w.queued {
			// The result came at the same instant; it takes precedence.
			p.mu.Unlock()
			w.timer.Stop()
			<-w.ready
			return w.result
		}
		now := time.Now()
		err = p.checkWait(w, err, now)
		p.end(now)
		if err != nil {
			w.timer.Stop()
			return waitResult{err: err}
		}
	}
}
