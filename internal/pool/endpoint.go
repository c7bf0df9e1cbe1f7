package pool

import (
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"adbuffer/internal/metrics"
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
	opts   EndpointOptions
	byHand byHand
	ejection

	idle    idleList
	shared  []*member // multiplexed connections that take requests
	open    int       // connections that are not draining
	dialing int       // dials under way to one of its addresses

	addrs []upstream.Address // of the last look-up; may hold an address several times
	turn  int                // index in addrs of the next address
	// lookup is the state of look-ups that found addresses of other endpoints but none of this one.
	lookup addressState

	// Set by endpoints.rebuild.

	barred      bool // gets no new requests: by an operator's change, or because it is ejected
	active      bool // gets new requests
	unreachable bool // no connection is open, and the last dial to each address failed; set by reachLocked

	gone bool // a reload removed the endpoint; its last connections drain
}

func (e *endpoint) weight() int {
	if e.byHand.weight > 0 {
		return e.byHand.weight
	}
	return max(1, e.opts.Weight)
}

// pickOf returns a connection of e that has a free place, or nil. It prefers multiplexed
// connections, then the most recently used idle connection.
func (c *connections) pickOf(e *endpoint, alone bool, now time.Time) *member {
	if m := leastInUse(e.shared, alone); m != nil {
		return m
	}
	return c.popIdle(e, now)
}

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

// endpointStats holds an endpoint's counters. A pool that replaces another one continues them.
type endpointStats struct {
	outcomes  [upstream.Outcomes]atomic.Uint64 // attempts by outcome
	duration  *metrics.Histogram
	ejections atomic.Uint64
	failed    [dialErrors]atomic.Uint64 // failed dials by kind of error
}

// attemptOutcomes are the possible outcomes of an attempt at an endpoint.
var attemptOutcomes = []upstream.Outcome{
	upstream.Fill, upstream.NoBid, upstream.Redirect, upstream.ClientError, upstream.ServerError, upstream.Overloaded, upstream.ConnLost,
	upstream.BadResponse, upstream.ResponseTooLarge, upstream.Deadline, upstream.Internal, upstream.ClientGone, upstream.Cancelled,
}

func newEndpointStats() *endpointStats {
	return &endpointStats{
		// The same buckets as for the SSP: around the usual deadlines of ad requests.
		duration: metrics.Durations(ms, 2*ms, 5*ms, 10*ms, 20*ms, 35*ms, 50*ms, 75*ms, 100*ms, 150*ms, 200*ms, 300*ms, 500*ms, 1000*ms, 2500*ms, 5000*ms),
	}
}

func (s *endpointStats) ended(o upstream.Outcome, took time.Duration) {
	s.outcomes[o].Add(1)
	s.duration.ObserveDuration(max(took, 0))
}

func (s *endpointStats) dialFailed(err error) { s.failed[dialErrorKind(err)].Add(1) }

// lookedUpFor returns the endpoint whose look-up failed with err. If err names no endpoint, it
// returns the first one.
func (s *endpoints) lookedUpFor(err error) *endpoint {
	var dns *net.DNSError
	if errors.As(err, &dns) {
		for _, e := range s.all {
			if host, _, err := net.SplitHostPort(e.name); err == nil && host == dns.Name {
				return e
			}
		}
	}
	return s.all[0]
}
