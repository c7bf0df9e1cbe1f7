package pool

import (
	"time"

	"golang.org/x/sys/cpu"

	"adbuffer/internal/upstream"
)

// connections are the open connections of a pool and the places on them. Guarded by Pool.mu.
//
// Each member is exactly one of: draining, in shared, in idle, checked by the janitor, or exclusive
// and in use.
type connections struct {
	// Each request changes these fields.

	inUse  int // sum of the members' inUse; inUse <= places
	places int // sum of the members' counted
	idle   idleList
	_      cpu.CacheLinePad

	opts *Options // the pool's
	// closeSoon closes a member's connection outside the lock, and then takes one off closing.
	closeSoon func(*member)
	stats     *stats

	// len(members) + closing + governor.dialing <= opts.MaxConns, unless SetOptions lowered
	// MaxConns.
	members  map[*member]struct{}
	draining int // members that take no more requests
	closing  int // connections that were removed, and whose Close has not returned
	shared   sharedList

	forecast  forecast
	probation probation
	high      highWater
}

// serving returns how many connections take new requests.
func (c *connections) serving() int { return len(c.members) - c.draining }

// pick chooses the connection for the next request, or returns nil. Multiplexed connections come
// first, then the idle connection that was used last.
func (c *connections) pick(alone bool, now time.Time) *member {
	if m := c.shared.leastInUse(alone); m != nil {
		return m
	}
	return c.popIdle(now)
}

// add counts m, a new connection. It takes no requests before serve.
func (c *connections) add(m *member, now time.Time) {
	c.members[m] = struct{}{}
	c.stats.opened(m.protocol)
	c.shared.replace = false
	m.opened, m.used = now, now
	m.setMaxAge(c.opts.MaxAge)
	m.renew(c.opts, now)
}

// serve lets m take requests.
func (c *connections) serve(m *member) {
	c.forecast.spoke(m.protocol)
	if !m.exclusive() {
		m.allowed = c.probation.places
		c.shared.list = append(c.shared.list, m)
	}
	c.recount(m)
}

// acquire takes a place of m for a request.
func (c *connections) acquire(m *member, alone bool, now time.Time) {
	m.inUse++
	m.requests++
	m.idleFor, m.used = now.Sub(m.used), now
	c.inUse++
	if alone && m.protocol == upstream.HTTP1Pipelined {
		m.alone = true
		c.recount(m)
	}
	c.high.note(now, c.load())
	if n := c.opts.MaxRequests; n > 0 && m.requests >= n {
		c.drain(m, upstream.ClosedMaxRequests)
	}
}

// unused is the hold time of a place that no exchange ran on.
const unused = time.Duration(-1)

// release takes a place of m back, which was in use for held.
func (c *connections) release(m *member, held time.Duration) {
	if m.inUse <= 0 {
		panic("BUG: a place was released twice")
	}
	m.inUse--
	c.inUse--
	m.fresh, m.alone = false, false
	switch {
	case held == unused:
		m.requests--
	case m.exclusive():
		m.used = m.used.Add(held) // since it was acquired: saves asking the clock
	case m.inUse == 0:
		m.used = time.Now()
	}
}

// recount brings the sums up to date with m's places. A place in use counts even if the connection
// offers fewer places by now.
func (c *connections) recount(m *member) {
	m.places = 0
	if !m.draining {
		if m.places = m.conn.Places(); m.places > 0 {
			c.forecast.saw(m.protocol, m.places)
		}
		if m.allowed > 0 {
			m.places = min(m.places, m.allowed)
		}
		if m.alone {
			m.places = min(m.places, 1)
		}
	}
	if n := max(m.places, m.inUse); n != m.counted {
		c.places += n - m.counted
		m.counted = n
	}
}

// drain stops new requests on m and closes it once none of its places is in use. The first reason
// stays. m must not be in idle.
func (c *connections) drain(m *member, why upstream.CloseReason) {
	if !m.draining {
		if why == upstream.NotClosed {
			why = upstream.ClosedError
		}
		m.draining, m.why = true, why
		c.draining++
		c.shared.remove(m)
	}
	c.recount(m)
	if m.inUse == 0 {
		c.remove(m)
	}
}

// remove forgets and closes m, which drains and has no place in use.
func (c *connections) remove(m *member) {
	if _, open := c.members[m]; !open {
		return
	}
	delete(c.members, m)
	c.draining--
	c.stats.closed(m)
	if m.conn.CloseReason() == upstream.NotClosed {
		c.closing++
		c.closeSoon(m)
	}
}

// drainFree drains all connections except exclusive ones in use.
func (c *connections) drainFree() {
	for _, m := range c.idle.take(len(c.idle.list)) {
		c.drain(m, upstream.ClosedDrain)
	}
	c.drainShared(upstream.ClosedDrain)
}

// drainShared drains all multiplexed connections.
func (c *connections) drainShared(why upstream.CloseReason) {
	for len(c.shared.list) > 0 {
		c.drain(c.shared.list[0], why)
	}
}

// trim drains the connections beyond max_idle, max_conns and max_http2_conns: the idle ones used
// least recently, and the multiplexed ones with the fewest requests. Exclusive ones in use are
// drained when they are released.
func (c *connections) trim() {
	for _, m := range c.idle.take(max(c.surplus(), len(c.idle.list)-c.opts.MaxIdle)) {
		c.drain(m, upstream.ClosedDrain)
	}
	for len(c.shared.list) > 0 && (c.surplus() > 0 || len(c.shared.list) > c.sharedLimit()) {
		c.drain(c.shared.emptiest(), upstream.ClosedDrain)
	}
}
