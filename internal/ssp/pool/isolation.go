package pool

import (
	"time"

	"adbuffer/internal/wire/exchange"
)

// isolation serves isolated requests, which share no connection: an SSP may end a connection because
// of such a request. An isolated request uses an exclusive connection. If none is idle, the pool opens an
// HTTP/2 connection that carries one exchange at a time (member.single), or the SSP chooses HTTP/1. Other
// requests may use that connection later, one at a time.
//
// At most a quarter of max_conns carries isolated requests, and a quarter of max_dials is for them. Further
// ones wait in their own queue, so that no other request waits behind them.
//
// A pool of pipelined connections does not need this: its isolated requests are alone. Guarded by Pool.mu.
type isolation struct {
	queue   queue
	inUse   int // connections in use by isolated requests
	dialing int // dials under way for isolated requests
	single  int // HTTP/2 connections with one place that are not draining
}

// isolates reports whether isolated requests need connections of their own.
func (o *Options) isolates() bool {
	return o.Protocol == exchange.HTTP2 || o.Protocol == exchange.Unknown
}

// isolatedLimit returns how many connections may carry isolated requests.
func (o *Options) isolatedLimit() int { return max(1, o.MaxConns/4) }

// mayIsolate reports whether another connection may carry an isolated request.
func (c *connections) mayIsolate() bool { return c.isolation.inUse < c.opts.isolatedLimit() }

// queueOf returns the queue in which a request waits.
func (k *machine) queueOf(isolated bool) *queue {
	if isolated {
		return &k.conns.isolation.queue
	}
	return &k.queue
}

// nextFor returns the queue whose first request gets m, an exclusive connection that is free.
func (k *machine) nextFor(m *member) (q *queue, isolated bool) {
	if s := &k.conns.isolation; s.queue.n > 0 && k.conns.mayIsolate() {
		return &s.queue, true
	}
	return &k.queue, false
}

// failWaiters ends the wait of each request for which giveUp returns an error.
func (k *machine) failWaiters(giveUp func(*waiter) error) {
	k.queue.fail(giveUp)
	k.conns.isolation.queue.fail(giveUp)
}

// serveIsolated gives idle exclusive connections to isolated requests.
func (k *machine) serveIsolated(now time.Time) {
	for q := &k.conns.isolation.queue; q.n > 0 && k.conns.mayIsolate(); {
		w := q.first()
		to := k.conns.pick(wish{avoid: w.avoid, resent: w.resent, isolated: true}, now)
		if to.m == nil {
			return
		}
		k.give(to, waitResult{}, now)
	}
}

// isolate starts the dials that isolated requests wait for, as far as the limits allow.
func (k *machine) isolate(now time.Time) {
	s := &k.conns.isolation
	for s.queue.n > s.dialing && s.dialing < max(1, k.opts.MaxDials/4) && s.inUse+s.dialing < k.opts.isolatedLimit() {
		if !k.growth.mayDialIsolated() {
			k.conns.makeRoomForIsolated(k.governor.dialing)
			break
		}
		if ok, pause := k.governor.ready(now); !ok {
			k.pausing(pause)
			break
		}
		k.startDial(aim{waiting: true, isolated: true}, now)
	}
	s.queue.expect(s.dialing, now)
	for {
		w := s.queue.popOverflow(k.opts.MaxPending)
		if w == nil {
			return
		}
		full := k.full()
		full.pending, full.isolated, full.isolatedLimit = s.queue.pending, s.inUse, k.opts.isolatedLimit()
		k.do.answer(w, waitResult{full: full})
	}
}

// makeRoomForIsolated closes a connection if max_conns are open: an idle one, or else the multiplexed one with
// the fewest requests once these have ended. The last multiplexed connection is closed only if it is idle.
func (c *connections) makeRoomForIsolated(dialing int) {
	if c.closing+c.draining > 0 || len(c.members)+dialing < c.opts.MaxConns {
		return
	}
	if c.kept > 0 {
		c.drainIdle(1)
		return
	}
	if len(c.shared.list) == 0 {
		return
	}
	if m := c.shared.emptiest(); m.inUse == 0 || len(c.shared.list) > 1 {
		c.drain(m, exchange.ClosedDrain)
	}
}
