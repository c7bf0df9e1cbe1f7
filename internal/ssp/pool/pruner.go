package pool

import (
	"slices"
	"time"

	"adbuffer/internal/wire/exchange"
)

// pruner closes connections that work: connections that are too old, were idle for too long, are above a limit,
// or must make room for a connection that the pool needs more.
//
// An endpoint is short of connections if it has none, or fewer than its share of max_conns. While max_conns are open,
// a connection of another endpoint must close before the pool can dial it. makeRoom chooses an idle or multiplexed
// connection, mustMakeRoom an exclusive one that comes back while requests wait:
//
//	suspectShort ──▶ makeRoom or mustMakeRoom ──▶ close ──▶ roomMade ──▶ machine.revive or useRoom dials
//
// Guarded by Pool.mu.
type pruner struct {
	conns    *connections
	size     *size
	growth   *growth
	governor *governor

	mayBeShort bool // an endpoint may be short; false saves the search for it
	makingRoom bool // the room of the next connection that closes is for an endpoint that is short
}

// expireIdle drains the idle connections that are too old or were idle for too long. The list is not
// ordered by age, so it checks all of them.
func (p *pruner) expireIdle(now time.Time) {
	for _, e := range p.conns.endpoints.all {
		e.idle.list = slices.DeleteFunc(e.idle.list, func(m *member) bool {
			why := p.conns.idleRule.expired(m, now)
			if why == exchange.NotClosed {
				return false
			}
			p.conns.kept--
			p.conns.idleRule.learned.outlasted(m, why, now)
			p.conns.drain(m, why)
			return true
		})
	}
}

// expireShared drains the multiplexed connections that are too old or were idle for too long. A
// connection that is too old stays, marked as aging, while it is in use and no other connection has more than half
// of its places free, but at most for replaceWithin. expireShared also drains a connection of the most crowded
// endpoint after an endpoint without connections got one beyond max_http2_conns.
func (p *pruner) expireShared(now time.Time) {
	if p.conns.shared.staying() > p.size.sharedLimit() {
		if m := p.conns.shared.ofMostCrowded(); m != nil {
			p.conns.drain(m, exchange.ClosedDrain)
		}
	}
	for i := len(p.conns.shared.list) - 1; i >= 0; i-- {
		m := p.conns.shared.list[i]
		switch why := p.conns.idleRule.expired(m, now); {
		case why == exchange.NotClosed:
		case m.inUse > 0 && !p.conns.shared.roomy(m) && now.Sub(m.retireAt) < replaceWithin:
			if !m.aging {
				m.aging = true
				p.conns.shared.aging++
			}
		default:
			p.conns.idleRule.learned.outlasted(m, why, now)
			p.conns.drain(m, why)
		}
	}
}

// trim drains the connections above max_idle, max_conns and max_http2_conns. It chooses the least
// recently used idle connections and the multiplexed connections with the fewest requests.
// Exclusive connections in use drain when they are released.
func (p *pruner) trim() {
	p.conns.drainIdle(max(p.size.surplus(), p.conns.kept-p.conns.opts.MaxIdle))
	for len(p.conns.shared.list) > 0 && (p.size.surplus() > 0 || len(p.conns.shared.list) > p.size.sharedLimit()) {
		p.conns.drain(p.conns.shared.emptiest(), exchange.ClosedDrain)
	}
}

// suspectShort records that an endpoint may be short of connections.
func (p *pruner) suspectShort() { p.mayBeShort = len(p.conns.endpoints.all) > 1 }

// makeRoom closes an idle connection of another endpoint if max_conns are open, so that e, or any endpoint if e is nil,
// can get one. It chooses an endpoint that gets no requests, else an active one that can spare a connection, else, if
// e has none, any endpoint with several. It closes one connection at a time. If no idle connection may close, and e is
// short, a multiplexed one drains.
func (p *pruner) makeRoom(e *endpoint, now time.Time) {
	c := p.conns
	if !p.growth.lacksRoom() || c.closing > 0 || e == nil && c.kept == 0 {
		return
	}
	var from *endpoint
	for _, other := range c.endpoints.all {
		switch {
		case other == e || len(other.idle.list) == 0:
		case !other.Active():
			from = other
		case from == nil && p.canSpare(other):
			from = other
		}
	}
	if from == nil && e != nil && e.open == 0 { // e has no connection: any endpoint with several may lose one
		for _, other := range c.endpoints.all {
			if other.open > 1 && len(other.idle.list) > 0 && (from == nil || other.open > from.open) {
				from = other
			}
		}
	}
	switch {
	case from != nil:
		c.drain(from.idle.popOldest(), exchange.ClosedDrain)
	case e == nil || !p.isShort(e, now):
		return
	default:
		if m := c.shared.ofMostCrowded(); m != nil && m.ep != e && c.draining == 0 {
			c.drain(m, exchange.ClosedDrain)
		}
	}
	p.suspectShort()
	p.makingRoom = p.makingRoom || e != nil
}

// mustMakeRoom reports whether m, an exclusive connection that comes back while requests wait, must close so that an
// endpoint that is short can get a connection. Otherwise that endpoint would get no request as long as the pool is
// busy.
func (p *pruner) mustMakeRoom(m *member, now time.Time) bool {
	if !p.mayBeShort || m.single || p.conns.closing > 0 || !p.growth.lacksRoom() || m.ep.Active() && m.ep.open < 2 {
		return false
	}
	e := p.shortEndpoint(now)
	if e == nil || e.open > 0 && !p.canSpare(m.ep) {
		return false
	}
	p.makingRoom = true
	return true
}

// roomMade reports whether the close that has ended may have been one that makes room for an endpoint.
func (p *pruner) roomMade() bool {
	made := p.makingRoom
	p.makingRoom = false
	return made
}

// shortEndpoint returns an endpoint that is short of connections, may be dialled now, and is not being dialled, or nil.
// It clears mayBeShort if no endpoint is short.
func (p *pruner) shortEndpoint(now time.Time) *endpoint {
	if !p.mayBeShort {
		return nil
	}
	p.mayBeShort = false
	for _, e := range p.conns.endpoints.all {
		if !p.isShort(e, now) {
			continue
		}
		p.mayBeShort = true
		if e.dialing == 0 && !p.governor.dialableAt(e, now).After(now) {
			return e
		}
	}
	return nil
}

// isShort reports whether e is short of connections. An active endpoint is short if it has no connection, or is below
// its share by at least one. An inactive endpoint is short if it gets no requests only because it has no connection.
func (p *pruner) isShort(e *endpoint, now time.Time) bool {
	if !e.Active() {
		return e.open == 0 && p.conns.endpoints.LacksOnlyConnection(e.Endpoint, now)
	}
	return e.open == 0 || float64(e.open+1) <= p.share(e)
}

// canSpare reports whether e has its share of connections even without one of them.
func (p *pruner) canSpare(e *endpoint) bool { return float64(e.open-1) >= p.share(e) }

// share returns e's share of the connections that may be open.
func (p *pruner) share(e *endpoint) float64 {
	return p.conns.endpoints.Share(e.Endpoint, p.size.maxConns())
}

// makeRoomForIsolated closes a connection if max_conns are open: an idle one, or else the multiplexed one with
// the fewest requests once these have ended. The last multiplexed connection is closed only if it is idle.
func (p *pruner) makeRoomForIsolated() {
	if p.conns.closing+p.conns.draining > 0 || len(p.conns.members)+p.governor.dialing < p.conns.opts.MaxConns {
		return
	}
	if p.conns.kept > 0 {
		p.conns.drainIdle(1)
		return
	}
	if len(p.conns.shared.list) == 0 {
		return
	}
	if m := p.conns.shared.emptiest(); m.inUse == 0 || len(p.conns.shared.list) > 1 {
		p.conns.drain(m, exchange.ClosedDrain)
	}
}
