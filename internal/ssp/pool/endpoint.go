package pool

import (
	"time"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/wire/exchange"
)

// endpoint is one of the SSP's endpoints, with its connections and addresses. Guarded by Pool.mu, except
// Name and stats.
type endpoint struct {
	*balancer.Endpoint
	stats *endpointStats

	idle    idleList
	shared  []*member // multiplexed connections that take requests
	open    int       // connections that are not draining
	dialing int       // dials under way to one of its addresses

	addrs []exchange.Address // of the last look-up
	turn  int                // index in addrs of the next address
	// lookup is the state of look-ups that found addresses of other endpoints but none of this one.
	lookup addressState

	dialError error // of the last dial or look-up; nil if a connection has been opened since
}

// lost reports whether e gets no requests because no connection to it is open and none can be opened.
func (e *endpoint) lost() bool {
	return e.Enabled() && !e.Ejected() && e.Unreachable() && !e.Active()
}

// endpoints holds the endpoints of the SSP. Guarded by Pool.mu, except the methods of the Balancer that
// are safe for concurrent use.
type endpoints struct {
	all    []*endpoint // by their Index
	byName map[string]*endpoint
	kept   *int // connections in the idle lists of all endpoints
	balancer.Balancer
}

// set applies the endpoint settings of o. It returns the new endpoints and the removed ones.
func (s *endpoints) set(o *Options, now time.Time) (added, removed []*endpoint) {
	before := s.byName
	for _, e := range s.Set(o.balancer(), now) {
		removed = append(removed, before[e.Name])
	}
	s.all, s.byName = nil, make(map[string]*endpoint)
	for _, b := range s.Endpoints() {
		e := before[b.Name]
		if e == nil {
			e = &endpoint{Endpoint: b, stats: newEndpointStats(), idle: idleList{kept: s.kept}}
			added = append(added, e)
		}
		s.all = append(s.all, e)
		s.byName[b.Name] = e
	}
	return added, removed
}

// of returns the endpoint of an address, or nil if a reload has removed it.
func (s *endpoints) of(a exchange.Address) *endpoint {
	if a.Name == "" {
		return s.all[0]
	}
	return s.byName[a.Name]
}

// disabled reports whether idle connections to e must close because an operator disabled e or the
// SSP.
func (s *endpoints) disabled(e *endpoint) bool {
	return s.State() == balancer.Disabled || e.HandState() == balancer.Disabled
}

// dialOrder returns the endpoints that a dial may go to, the best one first. waiting says that a request waits for
// the dial.
func (s *endpoints) dialOrder(waiting bool) (order []*endpoint) {
	conns := func(e *balancer.Endpoint) int { return s.all[e.Index].open + s.all[e.Index].dialing }
	for _, e := range s.DialOrder(waiting, conns) {
		order = append(order, s.all[e.Index])
	}
	return order
}

// crowding returns the number of connections of e, including the next one, divided by its weight.
func (e *endpoint) crowding() float64 {
	return float64(e.open+e.dialing+1) / float64(e.Weight())
}

// maxNewAddresses bounds the dials that one change of DNS starts for an endpoint.
const maxNewAddresses = 8
