package pool

import (
	"time"

	"adbuffer/internal/wire/exchange"
)

// lender chooses the connection for each request, lends a place of it, and takes the place back. Guarded by
// Pool.mu.
type lender struct {
	conns  *connections
	size   *size
	probes *prober

	// trial says that the next request uses an idle HTTP/1 connection although there is HTTP/2, since the
	// request is the trial of HTTP/1; see beside.go.
	trial bool
}

// wish is what a request wants of its connection; see exchange.Exchange.
type wish struct {
	avoid         string
	alone, resent bool
	mustAvoid     bool // gets no place of the endpoint avoid while another endpoint is active; see elsewhere
	isolated      bool // needs an exclusive connection
}

// choice is the connection for a request, and why it was chosen.
type choice struct {
	m     *member // nil: no place is free
	probe bool    // the request is the probe of m's endpoint
	// isolated says that the request is isolated.
	isolated bool
	// passedOver is the endpoint whose turn it was, but which had no free place. nil: it was the turn
	// of m's endpoint.
	passedOver *endpoint
}

// pick chooses the connection for the next request. A retry or a hedge avoids the named endpoint: it
// prefers the other active endpoints, the next one in turn first, and then uses no turn. Otherwise
// pick prefers the endpoint whose turn it is.
func (l *lender) pick(w wish, now time.Time) choice {
	s := &l.conns.endpoints
	d := s.Next(w.avoid)
	if d.Beside != nil {
		if m := l.pickAvoiding(s.all[d.Beside.Index], w, now); m != nil || w.mustAvoid {
			return choice{m: m, isolated: w.isolated}
		}
	}
	if d.Probe != nil && !w.isolated {
		if m := l.pickOf(s.all[d.Probe.Index], w, now); m != nil {
			l.probes.sent(s.all[d.Probe.Index], now)
			return choice{m: m, probe: true}
		}
		l.probes.notSent(s.all[d.Probe.Index], now) // the janitor begins again
	}
	e := s.all[d.Turn.Index]
	if m := l.pickOf(e, w, now); m != nil {
		s.UseTurn()
		return choice{m: m, isolated: w.isolated}
	}
	if len(s.all) > 1 {
		if m := l.pickOther(e, w, now); m != nil {
			s.UseTurn()
			s.Served(e.Endpoint, 0, 1)
			s.Served(m.ep.Endpoint, 1, 0)
			return choice{m: m, isolated: w.isolated, passedOver: e}
		}
	}
	return choice{} // a request that waits uses the turn for its dial
}

// pickAvoiding picks a connection of an active endpoint that the request does not avoid. It begins
// with the endpoint first.
func (l *lender) pickAvoiding(first *endpoint, w wish, now time.Time) *member {
	all := l.conns.endpoints.all
	for i := range all {
		e := all[(first.Index+i)%len(all)]
		if e.Active() && e.Name != w.avoid {
			if m := l.pickOf(e, w, now); m != nil {
				return m
			}
		}
	}
	return nil
}

// pickOther picks a connection of another endpoint, for a request of e when e has no free place. It
// tries the active endpoints after e first. Endpoints of another priority serve only if the active
// ones have no connection yet, or if the pool may open no more connections.
func (l *lender) pickOther(e *endpoint, w wish, now time.Time) *member {
	if l.conns.kept == 0 && len(l.conns.shared.list) == 0 {
		return nil
	}
	all := l.conns.endpoints.all
	open := e.open
	for i := 1; i < len(all); i++ {
		other := all[(e.Index+i)%len(all)]
		if !other.Active() {
			continue
		}
		if m := l.pickOf(other, w, now); m != nil {
			return m
		}
		open += other.open
	}
	if open > 0 && l.size.mayOpen() > 0 {
		return nil
	}
	for _, other := range all {
		if !other.Active() && !other.Barred() {
			if m := l.pickOf(other, w, now); m != nil {
				return m
			}
		}
	}
	return nil
}

// pickOf returns a connection of e that has a free place, or nil. It prefers multiplexed
// connections, then the most recently used idle connection.
func (l *lender) pickOf(e *endpoint, w wish, now time.Time) *member {
	if l.trial {
		if m := l.conns.popIdle(e, true, now); m != nil {
			l.trial = false
			return m
		}
	}
	if w.isolated || len(e.shared) == 0 {
		return l.conns.popIdle(e, false, now)
	}
	for {
		m := leastInUse(e.shared, w, now)
		switch {
		case m == nil:
			return l.conns.popIdle(e, false, now)
		case m.inUse > 0 || !m.outlivesAnnounced(now):
			return m
		}
		l.conns.drain(m, exchange.ClosedIdle)
	}
}

// acquire takes a place of ch.m for a request.
func (l *lender) acquire(ch choice, alone bool, now time.Time) *lease {
	m := ch.m
	m.inUse++
	m.requests++
	m.idleFor, m.used = now.Sub(m.used), now
	l.conns.inUse++
	if alone && m.protocol == exchange.HTTP1Pipelined {
		m.alone = true
		l.conns.recount(m)
	}
	if ch.isolated {
		m.isolated = true
		l.conns.isolated++
	}
	l.size.notePeak()
	if n := l.conns.opts.MaxRequests; n > 0 && m.requests >= n {
		l.conns.drain(m, exchange.ClosedMaxRequests)
	}
	if ch.probe {
		return &m.leases[1]
	}
	return &m.leases[0]
}

// unused is the hold time of a place on which no exchange ran.
const unused = time.Duration(-1)

// release takes back a place of m that was in use for held.
func (l *lender) release(m *member, held time.Duration) {
	if m.inUse <= 0 {
		panic("BUG: a place was released twice")
	}
	m.inUse--
	l.conns.inUse--
	m.fresh, m.alone = false, false
	if m.inUse == 0 {
		m.idleLimit = m.conn.IdleLimit()
	}
	if m.isolated {
		m.isolated = false
		l.conns.isolated--
	}
	switch {
	case held == unused:
		m.requests--
	case m.exclusive():
		m.used = m.used.Add(held) // the time of acquire plus held, which saves a clock call
	case m.inUse == 0:
		m.used = l.conns.clock()
	}
}
