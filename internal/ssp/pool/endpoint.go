package pool

import (
	"slices"
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

// applyTurns applies to the connections that other endpoints may get requests now.
func (k *machine) applyTurns() {
	c := &k.conns
	c.unusable = 0
	for _, e := range c.endpoints.all {
		if e.Barred() {
			c.unusable += e.open
		}
	}
	k.noteWarm()
	k.drainInactive()
	k.conns.due |= dueRevive
}

// drainInactive drains multiplexed connections to inactive endpoints once an active one has a
// connection. Idle exclusive connections stay until idle_timeout, or until the pool needs their
// place.
func (k *machine) drainInactive() {
	s := &k.conns.endpoints
	if len(s.all) == 1 || !slices.ContainsFunc(s.all, func(e *endpoint) bool { return e.Active() && e.open > 0 }) {
		return
	}
	for _, e := range s.all {
		if !e.Active() && !e.Probing() {
			k.conns.drainSharedOf(e)
		}
	}
}

// drainByState drains the connections that the operator's states allow no more.
func (k *machine) drainByState() {
	for _, e := range k.conns.endpoints.all {
		switch e.HandState() {
		case balancer.Disabled:
			k.conns.drainEndpoint(e)
		case balancer.Draining:
			k.conns.drainSharedOf(e)
		}
	}
	if k.conns.endpoints.State() == balancer.Disabled {
		k.conns.drainFree()
	}
	k.conns.due |= dueServe
}

// setEndpointOptions applies the settings of endpoints.
func (k *machine) setEndpointOptions(now time.Time) {
	added, removed := k.conns.endpoints.set(&k.opts, now)
	for _, e := range removed {
		// Requests on the connections complete. Dials under way bring connections that drain at once.
		k.conns.drainEndpoint(e)
		e.addrs = nil
	}
	k.applyTurns()
	k.added(added, removed, now)
}

// added opens a first connection to each endpoint that a reload added, if the SSP has any
// connections. The next look-up brings the other addresses.
func (k *machine) added(added, removed []*endpoint, now time.Time) {
	if len(added)+len(removed) == 0 {
		return
	}
	k.governor.forget()
	if len(k.conns.members) == 0 {
		return
	}
	for i, e := range added {
		if e.Active() && i < maxNewAddresses {
			k.dialFor(e, now)
		}
	}
	k.conns.due |= dueGrow
}

// follow applies the addresses of a look-up to the connections, if they are not those of the last
// look-up. opens says whether new addresses get connections.
func (k *machine) follow(addrs []exchange.Address, opens bool, now time.Time) {
	g := &k.governor
	if len(addrs) == len(g.known) && &addrs[0] == &g.known[0] {
		return
	}
	before := make(map[*endpoint][]exchange.Address)
	for _, e := range k.conns.endpoints.all {
		before[e] = e.addrs
	}
	g.share(addrs, now)
	for e, old := range before {
		k.reconcile(e, old, opens, now)
	}
}

// reconcile applies a change of e's addresses to its connections.
func (k *machine) reconcile(e *endpoint, before []exchange.Address, opens bool, now time.Time) {
	if len(e.addrs) == 0 || slices.Equal(before, e.addrs) {
		return // the last good result stays in use
	}
	for m := range k.conns.members {
		if m.ep == e && !slices.Contains(e.addrs, m.addr) {
			m.retireSoon(exchange.ClosedDNS, now)
		}
	}
	known := func(a exchange.Address) bool { return slices.Contains(before, a) }
	added := slices.DeleteFunc(slices.Clone(e.addrs), known)
	if !opens || len(added) == 0 || e.Barred() {
		return
	}
	// The next dials go to the new addresses.
	e.addrs, e.turn = slices.Concat(added, slices.DeleteFunc(e.addrs, func(a exchange.Address) bool { return !known(a) })), 0
	for range min(len(added), maxNewAddresses) {
		if k.conns.next() > exchange.HTTP1 && k.growth.sharedFull() || !k.dialFor(e, now) {
			return
		}
	}
}

// maxNewAddresses bounds the dials that one change of DNS starts for an endpoint.
const maxNewAddresses = 8
