package pool

import (
	"time"

	"adbuffer/internal/wire/exchange"
)

// Some requests must use HTTP/1 although the pool uses HTTP/2: a request that the SSP wants over HTTP/1
// (HTTP_1_1_REQUIRED, 421), and the request of a trial; see demotion. For them the pool opens an HTTP/1
// connection beside the HTTP/2 connections, one dial at a time, within max_conns. Other requests use it
// only if no HTTP/2 connection has a place.

// openBeside starts a dial that does not offer HTTP/2, unless one is under way. It returns a channel
// that is closed when the dial ends, or nil if no such dial may start now.
func (k *machine) openBeside(now time.Time) <-chan struct{} {
	if k.besideDialed != nil {
		return k.besideDialed
	}
	if ready, _ := k.governor.ready(now); !ready || !k.demotable(now) || !k.growth.mayDial() {
		return nil
	}
	k.besideDialed = make(chan struct{})
	k.order(dialOrder{m: &member{beside: true}}, now)
	return k.besideDialed
}

// addBeside adds m, which openBeside has opened.
func (k *machine) addBeside(m *member, now time.Time) {
	if !m.exclusive() || m.ep.Barred() {
		k.conns.drain(m, exchange.ClosedDrain)
		return
	}
	m.ep.idle.push(m) // even if max_idle is 0: a request waits for it
	k.conns.trial = k.demotion.trying(now)
	if k.conns.trial {
		k.conns.due |= dueServe
	}
}

// tryHTTP1 begins a trial.
func (k *machine) tryHTTP1(now time.Time) {
	switch {
	case k.demotion.trying(now) || !k.demotable(now):
	case k.openBeside(now) != nil:
		k.demotion.trialUntil = now.Add(trialTime)
	case !k.growth.mayDial() && k.conns.closing == 0 && len(k.conns.shared.list) > 1: // max_conns are open
		k.conns.drain(k.conns.shared.emptiest(), exchange.ClosedError)
	}
}

// besideEnded records how an exchange on a connection beside HTTP/2 ended. The trial is over if the
// exchange was its request.
func (p *Pool) besideEnded(err error) {
	now := time.Now()
	p.mu.Lock()
	defer p.end(now)
	if !p.demotion.trying(now) {
		return
	}
	p.demotion.trialUntil = time.Time{}
	if err == nil {
		p.demote(now)
	} else if o := exchange.AsError(err).Outcome; o == exchange.ConnLost || o == exchange.BadResponse {
		p.demotion.http1Failed(now)
	}
	p.conns.due |= dueGrow
}

// demotable reports whether the pool may switch to HTTP/1 and has not done so.
func (k *machine) demotable(now time.Time) bool {
	return !k.closed && k.opts.Protocol == exchange.Unknown && !k.demotion.on(now) && !now.Before(k.demotion.keptUntil)
}

// demote switches the pool to HTTP/1 for a while.
func (k *machine) demote(now time.Time) {
	k.demotion.begin(now)
	k.stats.demotions.Add(1)
	k.conns.forecast = forecast{protocol: exchange.HTTP1}
	k.conns.drainShared(exchange.ClosedError)
}

// restore ends a demotion because HTTP/1 does not work.
func (k *machine) restore(now time.Time) {
	k.demotion.http1Failed(now)
	k.conns.forecast = forecast{}
}
