package pool

import (
	"slices"
	"time"

	"adbuffer/internal/wire/exchange"
)

// pruner closes connections that work: connections that are too old, were idle for too long, are above a limit,
// or must make room for a connection that the pool needs more. Guarded by Pool.mu.
type pruner struct {
	conns    *connections
	size     *size
	governor *governor

	uneven  bool      // an endpoint may have less than its share of the connections
	roomFor *endpoint // the endpoint that gets the room of the next connection that comes back; nil if none
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
// connection stays, marked as aging, if it is in use and the other connections are not roomy. It
// drains once another connection is open. expireShared also drains a connection of the most crowded endpoint
// after an endpoint without connections got one beyond max_http2_conns.
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

// makeRoom closes an idle connection if max_conns are open, so that e can get one. It chooses
// an endpoint that gets no requests, or an active one with more than its share. It closes one
// connection at a time.
func (p *pruner) makeRoom(e *endpoint) {
	c := p.conns
	if c.closing > 0 || c.kept == 0 || len(c.members)+p.governor.dialing < p.size.maxConns() {
		return
	}
	var from *endpoint
	for _, other := range c.endpoints.all {
		switch {
		case other == e || len(other.idle.list) == 0:
		case !other.Active():
			from = other
		case from == nil && float64(other.open-1) >= c.endpoints.Share(other.Endpoint, p.size.maxConns()):
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
	if from != nil {
		c.drain(from.idle.popOldest(), exchange.ClosedDrain)
	}
}

// keepRoomFor makes sure that e, which was refused a dial, gets a connection though max_conns are open and none of
// them is idle.
func (p *pruner) keepRoomFor(e *endpoint) {
	if p.roomFor != nil || !p.atLimit() || !p.short(e) {
		return
	}
	p.roomFor = e
	if m := p.conns.shared.ofMostCrowded(); m != nil && m.ep != e && p.conns.closing+p.conns.draining == 0 {
		p.conns.drain(m, exchange.ClosedDrain)
	}
}

// makesRoom reports whether m, an exclusive connection that comes back while requests wait, must close so that an
// endpoint without connections, or with less than its share, can get one. Otherwise such an endpoint would get no
// request as long as the pool is busy.
func (p *pruner) makesRoom(m *member, now time.Time) bool {
	c := p.conns
	if p.roomFor == nil && !p.uneven || c.closing > 0 || !p.atLimit() || m.ep.open < 2 {
		return false
	}
	if p.roomFor == nil {
		p.uneven = false
		for _, e := range c.endpoints.all {
			if e == m.ep || !e.Active() || e.dialing == 0 && !p.short(e) {
				continue
			}
			p.uneven = true
			if e.dialing == 0 && !p.governor.dialableAt(e, now).After(now) {
				p.roomFor = e
				break
			}
		}
	}
	switch e := p.roomFor; {
	case e == nil || e == m.ep:
		return false
	case !p.short(e):
		p.roomFor, p.uneven = nil, true
		return false
	default:
		return e.open == 0 || float64(m.ep.open-1) >= c.endpoints.Share(m.ep.Endpoint, p.size.maxConns())
	}
}

// short reports whether e has no connection, or less than its share, and is not being dialled.
func (p *pruner) short(e *endpoint) bool {
	return e.dialing == 0 && (e.open == 0 || e.Active() && float64(e.open+1) <= p.conns.endpoints.Share(e.Endpoint, p.size.maxConns()))
}

// atLimit reports whether max_conns are open or being dialled.
func (p *pruner) atLimit() bool {
	return len(p.conns.members)-p.conns.single+p.governor.dialing >= p.size.maxConns()
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
