package pool

import (
	"slices"
	"time"

	"golang.org/x/sys/cpu"

	"adbuffer/internal/wire/exchange"
)

// connections holds the open connections of a pool and their places. Guarded by Pool.mu.
//
// Each member is in exactly one state: draining, in shared, in idle, checked by the janitor, or
// exclusive and in use.
type connections struct {
	endpoints endpoints // its last field, the turns, changes with each request

	// Each request changes these fields.

	inUse      int  // sum of the members' inUse; inUse <= places
	places     int  // sum of the members' counted
	kept       int  // idle connections, including connections that the janitor checks
	due        due  // what the event under way has made necessary
	hasActions bool // the event under way has led to actions
	_          cpu.CacheLinePad

	checking int // idle connections that the janitor has taken out to check them
	unusable int // open connections to barred endpoints

	opts  *Options // the pool's
	stats *stats
	do    *actions // the machine's

	// len(members) + closing + governor.dialing <= maxConns(), unless that was lowered.
	members  map[*member]struct{}
	draining int // members that take no more requests
	closing  int // removed connections whose Close has not returned
	shared   sharedList

	probes     prober
	idleRule   idleRule
	sized      int // how many connections the pool allows itself; 0 = max_conns
	closeAbove int // the size to which it went back; 0 = max_conns

	forecast  forecast
	trial     bool // the next request uses an idle HTTP/1 connection, although there is HTTP/2
	probation probation
	isolation isolation
	highest   float64 // saturation since the janitor's last round
}

// serving returns how many connections take new requests.
func (c *connections) serving() int { return len(c.members) - c.draining - c.unusable }

// wish is what a request wants of its connection; see exchange.Exchange.
type wish struct {
	avoid         string
	alone, resent bool
	elsewhere     bool // no endpoint but another active one will do, if there is one
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
func (c *connections) pick(w wish, now time.Time) choice {
	s := &c.endpoints
	d := s.Next(w.avoid)
	if d.Beside != nil {
		if m := c.pickBeside(s.all[d.Beside.Index], w, now); m != nil || w.elsewhere {
			return choice{m: m, isolated: w.isolated}
		}
	}
	if d.Probe != nil && !w.isolated {
		if m := c.pickOf(s.all[d.Probe.Index], w, now); m != nil {
			c.probes.sent(s.all[d.Probe.Index], now)
			return choice{m: m, probe: true}
		}
		c.probes.notSent(s.all[d.Probe.Index], now) // the janitor begins again
	}
	e := s.all[d.Turn.Index]
	if m := c.pickOf(e, w, now); m != nil {
		s.UseTurn()
		return choice{m: m, isolated: w.isolated}
	}
	if len(s.all) > 1 {
		if m := c.pickOther(e, w, now); m != nil {
			s.UseTurn()
			s.Served(e.Endpoint, 0, 1)
			s.Served(m.ep.Endpoint, 1, 0)
			return choice{m: m, isolated: w.isolated, passedOver: e}
		}
	}
	return choice{} // a request that waits uses the turn for its dial
}

// pickBeside picks a connection of an active endpoint that the request does not avoid. It tries beside first.
func (c *connections) pickBeside(beside *endpoint, w wish, now time.Time) *member {
	all := c.endpoints.all
	for i := range all {
		e := all[(beside.Index+i)%len(all)]
		if e.Active() && e.Name != w.avoid {
			if m := c.pickOf(e, w, now); m != nil {
				return m
			}
		}
	}
	return nil
}

// pickOther picks a connection of another endpoint, for a request of e when e has no free place. It
// tries the active endpoints after e first. Endpoints of another priority serve only if the active
// ones have no connection yet, or if the pool may open no more connections.
func (c *connections) pickOther(e *endpoint, w wish, now time.Time) *member {
	if c.kept == 0 && len(c.shared.list) == 0 {
		return nil
	}
	all := c.endpoints.all
	open := e.open
	for i := 1; i < len(all); i++ {
		other := all[(e.Index+i)%len(all)]
		if !other.Active() {
			continue
		}
		if m := c.pickOf(other, w, now); m != nil {
			return m
		}
		open += other.open
	}
	if open > 0 && c.mayOpen() > 0 {
		return nil
	}
	for _, other := range all {
		if !other.Active() && !other.Barred() {
			if m := c.pickOf(other, w, now); m != nil {
				return m
			}
		}
	}
	return nil
}

// pickOf returns a connection of e that has a free place, or nil. It prefers multiplexed
// connections, then the most recently used idle connection.
func (c *connections) pickOf(e *endpoint, w wish, now time.Time) *member {
	if c.trial {
		if m := c.popIdle(e, true, now); m != nil {
			c.trial = false
			return m
		}
	}
	for !w.isolated {
		m := leastInUse(e.shared, w, now)
		switch {
		case m == nil:
			return c.popIdle(e, false, now)
		case m.inUse > 0 || !m.outlivesAnnounced(now):
			return m
		}
		c.drain(m, exchange.ClosedIdle)
	}
	return c.popIdle(e, false, now)
}

// add counts m, a new connection. m takes no requests until serve is called.
func (c *connections) add(m *member, now time.Time) {
	c.members[m] = struct{}{}
	c.countOpen(m.ep, 1)
	c.stats.openedBy[m.protocol].Add(1)
	c.shared.replace = false
	m.opened, m.used = now, now
	m.setMaxAge(c.opts.MaxAge)
	m.renew(c.opts, now)
}

// countOpen adds n to the connections of e that are not draining.
func (c *connections) countOpen(e *endpoint, n int) {
	e.open += n
	if e.Barred() {
		c.unusable += n
	}
}

// serve lets m take requests.
func (c *connections) serve(m *member) {
	if !m.beside {
		c.forecast.noteProtocol(m.protocol)
	}
	if m.single {
		c.isolation.single++
	}
	if !m.exclusive() {
		m.allowed = c.probation.places
		c.shared.list = append(c.shared.list, m)
		m.ep.shared = append(m.ep.shared, m)
	}
	c.recount(m)
}

// acquire takes a place of ch.m for a request.
func (c *connections) acquire(ch choice, alone bool, now time.Time) *lease {
	m := ch.m
	m.inUse++
	m.requests++
	m.idleFor, m.used = now.Sub(m.used), now
	c.inUse++
	if alone && m.protocol == exchange.HTTP1Pipelined {
		m.alone = true
		c.recount(m)
	}
	if ch.isolated {
		m.isolated = true
		c.isolation.inUse++
	}
	c.noteSaturation()
	if n := c.opts.MaxRequests; n > 0 && m.requests >= n {
		c.drain(m, exchange.ClosedMaxRequests)
	}
	if ch.probe {
		return &m.leases[1]
	}
	return &m.leases[0]
}

// unused is the hold time of a place on which no exchange ran.
const unused = time.Duration(-1)

// release takes back a place of m that was in use for held.
func (c *connections) release(m *member, held time.Duration) {
	if m.inUse <= 0 {
		panic("BUG: a place was released twice")
	}
	m.inUse--
	c.inUse--
	m.fresh, m.alone = false, false
	if m.inUse == 0 {
		m.idleLimit = m.conn.IdleLimit()
	}
	if m.isolated {
		m.isolated = false
		c.isolation.inUse--
	}
	switch {
	case held == unused:
		m.requests--
	case m.exclusive():
		m.used = m.used.Add(held) // the time of acquire plus held, which saves a clock call
	case m.inUse == 0:
		m.used = time.Now()
	}
}

// recount updates the sums with m's places. A place in use counts even if the connection now offers
// fewer places.
func (c *connections) recount(m *member) {
	m.places = 0
	if !m.draining {
		m.places = m.conn.Places()
		if m.places > 0 {
			c.forecast.notePlaces(m.protocol, m.places)
		}
		if m.allowed > 0 {
			m.places = min(m.places, m.allowed)
		}
		if m.alone || m.single {
			m.places = min(m.places, 1)
		}
	}
	if n := max(m.places, m.inUse); n != m.counted {
		c.places += n - m.counted
		m.counted = n
	}
}

// drain stops new requests on m and closes it once none of its places is in use. A second call does
// not change the reason. m must not be in idle.
func (c *connections) drain(m *member, why exchange.CloseReason) {
	if !m.draining {
		m.draining, m.why = true, why
		c.draining++
		c.countOpen(m.ep, -1)
		if m.single {
			c.isolation.single--
		}
		if i := slices.Index(m.ep.shared, m); i >= 0 {
			m.ep.shared = slices.Delete(m.ep.shared, i, i+1)
		}
		c.shared.remove(m)
	}
	c.recount(m)
	if m.inUse == 0 {
		c.remove(m)
	}
}

// remove forgets and closes m. m is draining and none of its places is in use.
func (c *connections) remove(m *member) {
	if _, open := c.members[m]; !open {
		return
	}
	delete(c.members, m)
	c.draining--
	c.stats.closed(m)
	if m.conn.CloseReason() == exchange.NotClosed {
		c.closing++
		c.do.close(m)
	}
}

// drainFree drains all connections except exclusive connections in use.
func (c *connections) drainFree() {
	c.drainIdle(c.kept)
	c.drainShared(exchange.ClosedDrain)
}

// drainShared drains all multiplexed connections, and the idle HTTP/2 connections with one place.
func (c *connections) drainShared(why exchange.CloseReason) {
	for len(c.shared.list) > 0 {
		c.drain(c.shared.list[0], why)
	}
	for _, e := range c.endpoints.all {
		for i := len(e.idle.list) - 1; i >= 0; i-- {
			if m := e.idle.list[i]; m.single {
				e.idle.remove(m)
				c.drain(m, why)
			}
		}
	}
}

// drainEndpoint drains all connections of e. Exclusive connections in use close when they are
// released.
func (c *connections) drainEndpoint(e *endpoint) {
	for m := range c.members {
		if m.ep == e && !m.draining {
			e.idle.remove(m)
			c.drain(m, exchange.ClosedDrain)
		}
	}
}

func (c *connections) drainSharedOf(e *endpoint) {
	for len(e.shared) > 0 {
		c.drain(e.shared[0], exchange.ClosedDrain)
	}
}

// trim drains the connections above max_idle, max_conns and max_http2_conns. It chooses the least
// recently used idle connections and the multiplexed connections with the fewest requests.
// Exclusive connections in use drain when they are released.
func (c *connections) trim() {
	c.drainIdle(max(c.surplus(), c.kept-c.opts.MaxIdle))
	for len(c.shared.list) > 0 && (c.surplus() > 0 || len(c.shared.list) > c.sharedLimit()) {
		c.drain(c.shared.emptiest(), exchange.ClosedDrain)
	}
}
