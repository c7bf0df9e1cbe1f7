package pool

import (
	"time"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/wire/exchange"
)

// revive finds out whether endpoints that get no requests work again: it dials each endpoint
// whose pause has ended. An ejected endpoint then gets one request. If endpoints have health checks,
// it gets a check instead. An alarm and the janitor call it again when it is due.
func (k *machine) revive(now time.Time) {
	s := &k.conns.endpoints
	if k.closed || len(s.all) == 1 || s.State() != balancer.Enabled {
		return
	}
	probes, next := s.DueProbes(now)
	for _, b := range probes {
		k.beginProbe(s.all[b.Index], now)
	}
	for _, e := range s.all {
		if !e.Enabled() || e.Ejected() || !e.Unreachable() || e.Active() || e.dialing > 0 {
			continue
		}
		switch at := k.governor.dialableAt(e, now); {
		case !at.After(now):
			k.dialFor(e, now)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	if !next.IsZero() {
		k.do.reviveAgain(next)
	}
}

// dialFor starts a dial to e, and reports whether max_dials and max_conns allow it. At
// max_conns it closes an idle connection, and the dial may start after the close.
func (k *machine) dialFor(e *endpoint, now time.Time) bool {
	if !k.growth.mayDial() {
		k.makeRoom(e)
		return false
	}
	k.startDial(aim{endpoint: e}, now)
	return true
}

// dialPassedOver starts a dial to e, which had no free place for a request, so that e gets its
// share.
func (k *machine) dialPassedOver(e *endpoint, now time.Time) {
	c := &k.conns
	multiplexed := c.next() > exchange.HTTP1
	if e.dialing > 0 && (multiplexed || float64(e.open+e.dialing) >= c.endpoints.Share(e.Endpoint, c.inUse)) {
		return
	}
	k.dialWorking(e, now)
}

// dialWorking starts a dial to e for a request, and reports whether the limits of connections and the states of
// e's addresses allow it.
func (k *machine) dialWorking(e *endpoint, now time.Time) bool {
	shared := &k.conns.shared
	if k.conns.next() > exchange.HTTP1 && k.growth.sharedFull() && (e.open > 0 || shared.spare() == nil) {
		return false
	}
	return !k.governor.dialableAt(e, now).After(now) && k.dialFor(e, now)
}

// makeRoom closes an idle connection if max_conns are open, so that e can get one. It chooses
// an endpoint that gets no requests, or an active one with more than its share. It closes one
// connection at a time.
func (k *machine) makeRoom(e *endpoint) {
	c := &k.conns
	if c.closing > 0 || c.kept == 0 || len(c.members)+k.governor.dialing < c.maxConns() {
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
