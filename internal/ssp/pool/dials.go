package pool

import (
	"time"

	"adbuffer/internal/wire/exchange"
)

// dials starts dials, if the limits allow them. Guarded by Pool.mu.
type dials struct {
	opts      *Options // the pool's
	conns     *connections
	size      *size
	growth    *growth
	governor  *governor
	demotion  *demotion
	isolation *isolation
	pruner    *pruner
	do        *actions // the machine's
}

// start starts a dial.
func (d *dials) start(to aim, now time.Time) {
	if to.isolated {
		d.isolation.dialing++
	}
	d.order(dialOrder{m: &member{single: to.isolated}, to: to, offerHTTP2: d.offersHTTP2(to, now)}, now)
}

// order counts a dial, and orders it.
func (d *dials) order(o dialOrder, now time.Time) {
	d.governor.begin(o.to, o.offerHTTP2)
	d.governor.shortage.dialing(now)
	o.m.init(d.opts.ConnVersion)
	d.do.dial(o)
}

// offersHTTP2 reports whether the next dial may become HTTP/2. If the SSP may choose, the
// pool offers HTTP/2 on at most as many dials as it may have HTTP/2 connections. So an SSP that
// chooses HTTP/2 only sometimes stays within max_http2_conns, and no handshake is wasted. An endpoint
// without a connection gets one beyond the limit if another endpoint can lose one. The limit does not apply
// to connections for isolated requests.
func (d *dials) offersHTTP2(to aim, now time.Time) bool {
	switch shared := &d.conns.shared; d.opts.Protocol {
	case exchange.HTTP2:
		return true
	case exchange.Unknown:
		return !d.demotion.on(now) &&
			(to.isolated || shared.staying()+d.governor.offering < d.size.sharedLimit() || to.endpoint != nil && to.endpoint.open == 0 && shared.ofMostCrowded() != nil)
	default:
		return false
	}
}

// startFor starts a dial to e, and reports whether max_dials and max_conns allow it. At max_conns it makes room
// if e is short of connections or one is idle, and the dial starts after a close.
func (d *dials) startFor(e *endpoint, now time.Time) bool {
	if !d.growth.mayDial() {
		d.pruner.makeRoom(e, now)
		return false
	}
	d.start(aim{endpoint: e}, now)
	return true
}

// forPassedOver starts a dial to e, which had no free place for a request, so that e gets its
// share.
func (d *dials) forPassedOver(e *endpoint, now time.Time) {
	c := d.conns
	multiplexed := d.size.next() > exchange.HTTP1
	if e.dialing > 0 && (multiplexed || float64(e.open+e.dialing) >= c.endpoints.Share(e.Endpoint, c.inUse)) {
		return
	}
	d.forRequest(e, now)
}

// forRequest starts a dial to e for a request, and reports whether the limits of connections and the states of
// e's addresses allow it.
func (d *dials) forRequest(e *endpoint, now time.Time) bool {
	shared := &d.conns.shared
	if d.size.next() > exchange.HTTP1 && d.growth.sharedFull() && (e.open > 0 || shared.ofMostCrowded() == nil) {
		return false
	}
	return !d.governor.dialableAt(e, now).After(now) && d.startFor(e, now)
}
