package pool

import (
	"slices"
	"time"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/wire/exchange"
)

// endpointChanges adapts the connections to changes of the endpoints: of their turns and ejections, which the
// balancer decides, of the states that an operator sets, of their settings, and of their addresses. Guarded by Pool.mu.
type endpointChanges struct {
	opts     *Options // the pool's
	conns    *connections
	size     *size
	growth   *growth
	governor *governor
	dials    *dials
	pruner   *pruner
	do       *actions // the machine's

	warm bool // min_idle connections have been open
}

// apply applies a change of e, which the balancer decided. If e is nil, the change concerns the
// whole SSP.
func (c *endpointChanges) apply(e *endpoint, change balancer.Change) {
	for _, event := range change.Events {
		if event.Ejected {
			e.stats.ejections.Add(1)
		}
	}
	if !c.conns.closed {
		c.do.report(change.Events)
	}
	if change.Turns {
		c.applyTurns()
	}
	if change.DrainEndpoint {
		c.conns.drainEndpoint(e)
	}
	if change.Turns || change.DrainEndpoint {
		c.conns.due |= dueServe
	}
}

// applyTurns adapts the connections after a change that may have made endpoints active, inactive or barred.
func (c *endpointChanges) applyTurns() {
	c.conns.unusable = 0
	for _, e := range c.conns.endpoints.all {
		if e.Barred() {
			c.conns.unusable += e.open
		}
	}
	c.noteWarm()
	c.drainInactive()
	c.pruner.suspectShort()
	c.conns.due |= dueRevive
}

// drainInactive drains multiplexed connections to inactive endpoints once an active one has a
// connection, except to endpoints that are being probed. Idle exclusive connections stay until
// idle_timeout, or until the pool closes them to make room for others.
func (c *endpointChanges) drainInactive() {
	s := &c.conns.endpoints
	if len(s.all) == 1 || !slices.ContainsFunc(s.all, func(e *endpoint) bool { return e.Active() && e.open > 0 }) {
		return
	}
	for _, e := range s.all {
		if !e.Active() && !e.Probing() {
			c.conns.drainSharedOf(e)
		}
	}
}

// drainByState drains the connections that the states set by an operator no longer allow.
func (c *endpointChanges) drainByState() {
	for _, e := range c.conns.endpoints.all {
		switch e.HandState() {
		case balancer.Disabled:
			c.conns.drainEndpoint(e)
		case balancer.Draining:
			c.conns.drainSharedOf(e)
		}
	}
	if c.conns.endpoints.State() == balancer.Disabled {
		c.conns.drainFree()
	}
	c.conns.due |= dueServe
}

// updateReachable records whether e is reachable. It is unreachable if no connection to it is open, and the last dial
// to each of its addresses failed.
func (c *endpointChanges) updateReachable(e *endpoint, now time.Time) {
	if e.open == 0 {
		c.pruner.suspectShort()
	}
	unreachable := e.open == 0 && c.governor.allFailed(e)
	if c.conns.endpoints.SetUnreachable(e.Endpoint, unreachable, now).Turns {
		c.applyTurns()
	} else if unreachable {
		c.conns.due |= dueRevive
	}
}

// setOptions applies the settings of endpoints.
func (c *endpointChanges) setOptions(now time.Time) {
	added, removed := c.conns.endpoints.set(c.opts, now)
	for _, e := range removed {
		// Requests on the connections complete. Dials under way bring connections that drain at once.
		c.conns.drainEndpoint(e)
		e.addrs = nil
	}
	c.applyTurns()
	c.added(added, removed, now)
}

// added opens a first connection to each endpoint that a reload added, but to at most maxNewAddresses of them, if the
// SSP has any connections. The next look-up brings the addresses of the new endpoints.
func (c *endpointChanges) added(added, removed []*endpoint, now time.Time) {
	if len(added)+len(removed) == 0 {
		return
	}
	c.governor.forget()
	if len(c.conns.members) == 0 {
		return
	}
	for i, e := range added {
		if e.Active() && i < maxNewAddresses {
			c.dials.startFor(e, now)
		}
	}
	c.conns.due |= dueGrow
}

// follow applies the addresses of a look-up to the connections, if they are not those of the last
// look-up. opens says whether new addresses get connections.
func (c *endpointChanges) follow(addrs []exchange.Address, opens bool, now time.Time) {
	g := c.governor
	if len(addrs) == len(g.known) && &addrs[0] == &g.known[0] {
		return
	}
	before := make(map[*endpoint][]exchange.Address)
	for _, e := range c.conns.endpoints.all {
		before[e] = e.addrs
	}
	g.share(addrs, now)
	for e, old := range before {
		c.reconcile(e, old, opens, now)
	}
}

// reconcile applies a change of e's addresses to its connections.
func (c *endpointChanges) reconcile(e *endpoint, before []exchange.Address, opens bool, now time.Time) {
	if len(e.addrs) == 0 || slices.Equal(before, e.addrs) {
		return // if e has no addresses now, its connections stay open
	}
	for m := range c.conns.members {
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
		if c.size.next() > exchange.HTTP1 && c.growth.sharedFull() || !c.dials.startFor(e, now) {
			return
		}
	}
}

func (c *endpointChanges) noteWarm() {
	if !c.warm && c.conns.serving() >= c.growth.minIdle() {
		c.warm = true
		c.do.isWarm()
	}
}
