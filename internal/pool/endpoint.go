package pool

import (
	"slices"
	"sync/atomic"
	"time"

	"adbuffer/internal/upstream"
)

// EndpointOptions are the settings of one endpoint.
type EndpointOptions struct {
	Name     string // host:port
	Weight   int    // ≥ 1; weight / sum of weights is its share of the requests
	Priority int    // ≥ 0; the working endpoints with the lowest priority get the requests
}

// endpoint is one of the SSP's endpoints, with its connections. Guarded by Pool.mu, except name and
// the fields marked as atomic.
type endpoint struct {
	name   string
	stats  *endpointStats // atomic
	health health         // atomic
	aside  atomic.Bool    // it is out, and others serve; set by endpoints.rebuild
	opts   EndpointOptions
	byHand byHand
	ejection
	checks checkResults

	idle    idleList
	shared  []*member // multiplexed connections that take requests
	open    int       // connections that are not draining
	dialing int       // dials under way to one of its addresses

	addrs []upstream.Address // of the last look-up
	turn  int                // index in addrs of the next address
	// lookup is the state of look-ups that found addresses of other endpoints but none of this one.
	lookup addressState

	// Set by endpoints.rebuild.

	barred      bool // gets no new requests: by an operator's change, or because it is ejected
	active      bool // gets new requests
	unreachable bool // no connection is open, and the last dial to each address failed; set by reachLocked

	dialError error // of the last dial or look-up; nil if a connection has been opened since

	gone bool // a reload removed the endpoint; its last connections drain
}

// weight returns the weight in force.
func (e *endpoint) weight() int {
	if e.byHand.weight > 0 {
		return e.byHand.weight
	}
	return max(1, e.opts.Weight)
}

// pickOf returns a connection of e that has a free place, or nil. It prefers multiplexed
// connections, then the most recently used idle connection.
func (c *connections) pickOf(e *endpoint, alone bool, now time.Time) *member {
	if m := leastInUse(e.shared, alone, now); m != nil {
		return m
	}
	return c.popIdle(e, now)
}

// opened counts m as open.
func (c *connections) opened(m *member) {
	m.ep.open++
	if m.ep.barred {
		c.benched++
	}
}

// notOpen removes m, which begins to drain, from the open connections.
func (c *connections) notOpen(m *member) {
	e := m.ep
	e.open--
	if e.barred {
		c.benched--
	}
	if i := slices.Index(e.shared, m); i >= 0 {
		e.shared = slices.Delete(e.shared, i, i+1)
	}
}

// drainEndpoint drains all connections of e. Exclusive connections in use close when they are
// released.
func (c *connections) drainEndpoint(e *endpoint) {
	for m := range c.members {
		if m.ep == e && !m.draining {
			e.idle.remove(m)
			c.drain(m, upstream.ClosedDrain)
		}
	}
}

func (c *connections) drainSharedOf(e *endpoint) {
	for len(e.shared) > 0 {
		c.drain(e.shared[0], upstream.ClosedDrain)
	}
}

// crowding returns the number of connections of e, including the next one, divided by its weight.
func (e *endpoint) crowding() float64 {
	return float64(e.open+e.dialing+1) / float64(e.weight())
}
