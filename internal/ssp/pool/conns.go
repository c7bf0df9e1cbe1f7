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
	// clock returns the time, for an event that brings none: above all the return of a place, since the return of an
	// exclusive connection for which no request waits must not read the clock.
	clock func() time.Time

	// len(members) + closing + governor.dialing <= opts.MaxConns, unless SetOptions lowered it. For size.maxConns(),
	// which may be less, growth.used counts: it leaves out dials and HTTP/2 connections for isolated requests.
	members  map[*member]struct{}
	draining int // members that take no more requests
	closing  int // removed connections whose Close has not returned
	shared   sharedList

	isolated int  // connections in use by isolated requests
	single   int  // HTTP/2 connections with one place that are not draining; see isolation
	closed   bool // Close was called

	idleRule  idleRule
	forecast  forecast
	probation probation
}

// serving returns how many connections may get requests: they are not draining, and their endpoints are not barred.
func (c *connections) serving() int { return len(c.members) - c.draining - c.unusable }

// add counts m, a new connection. m takes no requests until serve is called.
func (c *connections) add(m *member, now time.Time) {
	c.members[m] = struct{}{}
	c.countOpen(m.ep, 1)
	if m.single {
		c.single++
	}
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
	if !m.exclusive() {
		m.allowed = c.probation.places
		c.shared.list = append(c.shared.list, m)
		m.ep.shared = append(m.ep.shared, m)
	}
	c.recount(m)
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
// not change the reason. m must not be in idle. The other methods whose names begin with drain drain several
// connections.
func (c *connections) drain(m *member, why exchange.CloseReason) {
	if !m.draining {
		m.draining, m.why = true, why
		c.draining++
		c.countOpen(m.ep, -1)
		if m.single {
			c.single--
		}
		if i := slices.Index(m.ep.shared, m); i >= 0 {
			m.ep.shared = slices.Delete(m.ep.shared, i, i+1)
		}
		c.shared.remove(m, c.clock)
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

// drainFree drains all connections except exclusive connections in use and connections that the janitor checks.
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

// drainEndpoint drains all connections of e. A connection in use closes once none of its places is in
// use.
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
