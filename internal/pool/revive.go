package pool

import (
	"slices"
	"time"

	"adbuffer/internal/upstream"
)

// reviveLocked finds out whether endpoints that get no requests work again: it dials each endpoint
// whose pause has ended. An ejected endpoint then gets one request. If endpoints have health checks,
// it gets a check instead. reviveLocked also continues slow_start. A timer and the janitor call it again when it is due.
func (p *Pool) reviveLocked(now time.Time) {
	s := &p.conns.endpoints
	if p.closed || len(s.all) == 1 || s.byHand != Enabled {
		return
	}
	var next time.Time
	due := func(at time.Time) bool {
		if !at.After(now) {
			return true
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
		return false
	}
	for _, e := range s.all {
		switch {
		case !e.enabled():
		case e.ejected:
			if e.probe == probeSent && now.Sub(e.probed) > probeLimit {
				e.probe = noProbe
			}
			switch {
			case e.probe != noProbe || !due(e.until):
			case p.checker.checkSoon(e):
				e.probe, e.probed = probeIsCheck, now
			default:
				p.probeLocked(e, now)
			}
		case e.unreachable && !e.active:
			if e.dialing == 0 && due(p.governor.dialableAt(e, now)) {
				p.dialForLocked(e, now)
			}
		}
	}
	if !next.IsZero() {
		p.reviveTimer.Reset(next.Sub(now))
	}
}

func (p *Pool) reviveAgain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reviveLocked(time.Now())
}

// startSlowlyLocked raises the shares of endpoints that returned.
func (p *Pool) startSlowlyLocked(now time.Time) {
	c := &p.conns
	starting := func(e *endpoint) bool { return !e.returned.IsZero() }
	if !slices.ContainsFunc(c.endpoints.all, starting) {
		return
	}
	c.turns.set(c.endpoints.active, c.endpoints.weights(p.opts.SlowStart, now))
	for _, e := range c.endpoints.all {
		if e.started(p.opts.SlowStart, now) == 10 {
			e.returned = time.Time{}
		}
	}
}

// probeLocked opens a connection to e for the probe, unless one is open.
func (p *Pool) probeLocked(e *endpoint, now time.Time) {
	if e.open > 0 {
		p.probeAgainLocked(e)
		return
	}
	if e.dialing == 0 && p.dialForLocked(e, now) {
		e.probe, e.probed = probeDials, now
	}
}

// dialForLocked starts a dial to e, and reports whether max_dials and max_conns allow it. At
// max_conns it closes an idle connection, and the dial may start after the close.
func (p *Pool) dialForLocked(e *endpoint, now time.Time) bool {
	if !p.growth.mayDial() {
		p.makeRoomLocked(e)
		return false
	}
	p.startDialLocked(e, now)
	return true
}

// dialShortLocked starts a dial to e, which had no free place for a request, so that e gets its
// share.
func (p *Pool) dialShortLocked(e *endpoint, now time.Time) {
	c := &p.conns
	multiplexed := c.next() > upstream.HTTP1
	if e.dialing > 0 && (multiplexed || float64(e.open+e.dialing) >= c.shareOf(e, c.inUse)) {
		return
	}
	if multiplexed && p.growth.sharedFull() && (e.open > 0 || c.shared.spare() == nil) {
		return
	}
	if p.governor.dialableAt(e, now).After(now) {
		return
	}
	p.dialForLocked(e, now)
}

// shareOf returns e's share of n connections or places.
func (c *connections) shareOf(e *endpoint, n int) float64 {
	sum := 0
	for _, a := range c.endpoints.active {
		sum += a.weight()
	}
	return float64(n) * float64(e.weight()) / float64(max(sum, 1))
}

// makeRoomLocked closes an idle connection if max_conns are open, so that e can get one. It chooses
// an endpoint that gets no requests, or an active one with more than its share. It closes one
// connection at a time.
func (p *Pool) makeRoomLocked(e *endpoint) {
	c := &p.conns
	if c.closing > 0 || c.kept == 0 || len(c.members)+p.governor.dialing < c.opts.MaxConns {
		return
	}
	var from *endpoint
	for _, other := range c.endpoints.all {
		switch {
		case other == e || len(other.idle.list) == 0:
		case !other.active:
			from = other
		case from == nil && float64(other.open-1) >= c.shareOf(other, c.opts.MaxConns):
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
		c.drain(from.idle.popOldest(), upstream.ClosedDrain)
	}
}
