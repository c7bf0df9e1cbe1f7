package pool

import (
	"time"

	"adbuffer/internal/wire/exchange"
)

// http1Beside opens HTTP/1 connections for a pool that uses HTTP/2, one dial at a time, within max_conns. Two
// kinds of requests need them: a request that the SSP wants over HTTP/1 (HTTP_1_1_REQUIRED, 421), and the
// request of a trial; see demotion. Other requests use such a connection only if no HTTP/2 connection has a
// place. Guarded by Pool.mu.
type http1Beside struct {
	conns    *connections
	lender   *lender
	growth   *growth
	governor *governor
	demotion *demotion
	dials    *dials

	dialed chan struct{} // closed when the dial under way ends; nil if none is under way
}

// open starts a dial that does not offer HTTP/2, unless one is under way. It returns a channel
// that is closed when the dial ends, or nil if no such dial may start now.
func (b *http1Beside) open(now time.Time) <-chan struct{} {
	if b.dialed != nil {
		return b.dialed
	}
	if ready, _ := b.governor.ready(now); !ready || !b.demotion.possible(now) || !b.growth.mayDial() {
		return nil
	}
	b.dialed = make(chan struct{})
	b.dials.order(dialOrder{m: &member{beside: true}}, now)
	return b.dialed
}

// add adds m, which open has opened.
func (b *http1Beside) add(m *member, now time.Time) {
	if !m.exclusive() || m.ep.Barred() {
		b.conns.drain(m, exchange.ClosedDrain)
		return
	}
	m.ep.idle.push(m) // even if max_idle is 0: a request waits for it
	b.lender.trial = b.demotion.trying(now)
	if b.lender.trial {
		b.conns.due |= dueServe
	}
}

// try begins a trial.
func (b *http1Beside) try(now time.Time) {
	switch {
	case b.demotion.trying(now) || !b.demotion.possible(now):
	case b.open(now) != nil:
		b.demotion.trialUntil = now.Add(trialTime)
	case !b.growth.mayDial() && b.conns.closing == 0 && len(b.conns.shared.list) > 1: // max_conns are open
		b.conns.drain(b.conns.shared.emptiest(), exchange.ClosedError)
	}
}

// ended records how an exchange on a connection beside HTTP/2 ended. The trial is over if the exchange was its
// request.
func (b *http1Beside) ended(err error, now time.Time) {
	if !b.demotion.trying(now) {
		return
	}
	b.demotion.trialUntil = time.Time{}
	if err == nil {
		b.demotion.demote(now)
	} else if o := exchange.AsError(err).Outcome; o == exchange.ConnLost || o == exchange.BadResponse {
		b.demotion.http1Failed(now)
	}
	b.conns.due |= dueGrow
}
