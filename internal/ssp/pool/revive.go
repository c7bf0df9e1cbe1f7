package pool

import (
	"time"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/wire/exchange"
)

// reviveLocked finds out whether endpoints that get no requests work again: it dials each endpoint
// whose pause has ended. An ejected endpoint then gets one request. If endpoints have health checks,
// it gets a check instead. An alarm and the janitor call it again when it is due.
func (p *Pool) reviveLocked(now time.Time) {
	s := &p.conns.endpoints
	if p.closed || len(s.all) == 1 || s.State() != balancer.Enabled {
		return
	}
	probes, next := s.DueProbes(now)
	for _, b := range probes {
		p.probeLocked(s.all[b.Index], now)
	}
	for _, e := range s.all {
		if !e.Enabled() || e.Ejected() || !e.Unreachable() || e.Active() || e.dialing > 0 {
			continue
		}
		switch at := p.governor.dialableAt(e, now); {
		case !at.After(now):
			p.dialForLocked(e, now)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	if !next.IsZero() {
		p.reviveSoon.Set(next)
	}
}

func (p *Pool) reviveAgain() {
	p.mu.Lock()
	defer p.end(time.Time{})
	p.reviveSoon.At = time.Time{}
	p.conns.due |= dueRevive
}

// probeLocked begins a probe of e: a health check or, on a connection to e, the next request.
func (p *Pool) probeLocked(e *endpoint, now time.Time) {
	switch s := &p.conns.endpoints; {
	case p.checker.checkSoon(e):
		s.SetProbe(e.Endpoint, balancer.ProbeIsCheck, now)
	case e.open > 0:
		s.SetProbe(e.Endpoint, balancer.ProbeReady, now)
	case e.dialing == 0 && p.dialForLocked(e, now):
		s.SetProbe(e.Endpoint, balancer.ProbeDials, now)
	}
}

// dialForLocked starts a dial to e, and reports whether max_dials and max_conns allow it. At
// max_conns it closes an idle connection, and the dial may start after the close.
func (p *Pool) dialForLocked(e *endpoint, now time.Time) bool {
	if !p.growth.mayDial() {
		p.makeRoomLocked(e)
		return false
	}
	p.startDialLocked(aim{endpoint: e}, now)
	return true
}

// dialPassedOverLocked starts a dial to e, which had no free place for a request, so that e gets its
// share.
func (p *Pool) dialPassedOverLocked(e *endpoint, now time.Time) {
	c := &p.conns
	multiplexed := c.next() > exchange.HTTP1
	if e.dialing > 0 && (multiplexed || float64(e.open+e.dialing) >= c.endpoints.Share(e.Endpoint, c.inUse)) {
		return
	}
	p.dialWorkingLocked(e, now)
}

// dialWorkingLocked starts a dial to e for a request, and reports whether the limits of connections and the states of
// e's addresses allow it.
func (p *Pool) dialWorkingLocked(e *endpoint, now time.Time) bool {
	shared := &p.conns.shared
	if p.conns.next() > exchange.HTTP1 && p.growth.sharedFull() && (e.open > 0 || shared.spare() == nil) {
		return false
	}
	return !p.governor.dialableAt(e, now).After(now) && p.dialForLocked(e, now)
}

// makeRoomLocked closes an idle connection if max_conns are open, so that e can get one. It chooses
// an endpoint that gets no requests, or an active one with more than its share. It closes one
// connection at a time.
func (p *Pool) makeRoomLocked(e *endpoint) {
	c := &p.conns
	if c.closing > 0 || c.kept == 0 || len(c.members)+p.governor.dialing < c.maxConns() {
		return
	}
	var from *endpoint
	for _, other := range c.endpoints.all {
		switch {
		case other == e || len(other.idle.list) == 0:
		case !other.Active():
			from = other
		case from == nil && float64(other.open-1) >= c.endpoints.Share(other.Endpoint, c.maxConns()):
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
