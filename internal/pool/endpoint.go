package pool

import (
	"slices"
	"time"

	"adbuffer/internal/upstream"
)

// EndpointOptions are the settings of one endpoint.
type EndpointOptions struct {
	Name     string // host:port
	Weight   int    // ≥ 1; its share of the requests is its part of the sum
	Priority int    // ≥ 0; endpoints of the lowest one that works get the requests
}

// endpoint is one of the SSP's endpoints, with its connections. Guarded by Pool.mu, except name and
// the fields that say otherwise.
type endpoint struct {
	name   string
	stats  *endpointStats // atomic
	health health         // atomic
	opts   EndpointOptions
	byHand byHand
	ejection

	idle    idleList
	shared  []*member // multiplexed connections that take requests
	open    int       // connections that do not drain
	dialing int       // dials under way to one of its addresses

	addrs []upstream.Address // of the last look-up; may hold an address several times
	turn  int                // index in addrs of the next address
	// lookup is whether look-ups that found addresses of other endpoints found none of this one.
	lookup addressState

	// Set by endpoints.rebuild.

	barred      bool // gets no new requests: by hand, or because it is ejected
	active      bool // new requests go to it
	unreachable bool // nothing is open, and the last dial to each address failed; set by reachLocked

	gone bool // a reload removed it; its last connections drain
}

// weight returns the weight in force.
func (e *endpoint) weight() int {
	if e.byHand.weight > 0 {
		return e.byHand.weight
	}
	return max(1, e.opts.Weight)
}

// pick returns a connection of e that has a free place, or nil. Multiplexed connections come first,
// then the idle connection that was used last.
func (c *connections) pickOf(e *endpoint, alone bool, now time.Time) *member {
	if m := leastInUse(e.shared, alone); m != nil {
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

// notOpen counts m, which begins to drain, no longer as open.
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

// drainEndpoint drains all connections of e. Exclusive ones in use close when they are released.
func (c *connections) drainEndpoint(e *endpoint, why upstream.CloseReason) {
	for m := range c.members {
		if m.ep == e && !m.draining {
			e.idle.remove(m)
			c.drain(m, why)
		}
	}
}

// drainSharedOf drains the multiplexed connections of e.
func (c *connections) drainSharedOf(e *endpoint, why upstream.CloseReason) {
	for len(e.shared) > 0 {
		c.drain(e.shared[0], why)
	}
}

// crowding returns how many connections e has for its weight, with the next one.
func (e *endpoint) crowding() float64 {
	return float64(e.open+e.dialing+1) / float64(e.weight())
}
