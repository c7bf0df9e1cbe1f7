package pool

import (
	"time"

	"adbuffer/internal/ssp/balancer"
)

// due says what an event has made necessary. Events only set it: what depends on the whole pool is
// decided once, when the event ends, by settle.
type due uint8

const (
	// dueGrow: the number of waiters, of connections or of dials changed.
	dueGrow due = 1 << iota
	// dueServe: a place may be free for a waiter.
	dueServe
	// dueFail: a dial brought no connection, so waiters may have to fail.
	dueFail
	// dueElsewhere: a dial ended for which refused requests may have waited.
	dueElsewhere
	// dueRevive: an endpoint that gets no requests may be due for a dial or a probe.
	dueRevive
	// dueRoom: a connection has closed so that an endpoint that is short of connections can get one.
	dueRoom
)

// settle does what the event has made necessary, once and in this order:
//
//	revive ──▶ use room ──▶ fail ──▶ end waits for other endpoints ──▶ serve ──▶ dial ──▶ set who is pending, and refuse
//
// Dials for endpoints without requests come first, because waiters need not fail while such a dial is
// under way. Free places are given before the pool dials for the remaining waiters.
func (k *machine) settle(now time.Time) {
	due := &k.conns.due // a step may make a later one necessary
	if *due == 0 {
		return
	}
	if now.IsZero() {
		now = k.conns.clock()
	}
	if *due&dueRevive != 0 {
		k.revive(now)
	}
	if *due&dueRoom != 0 {
		k.useRoom(now)
	}
	if *due&dueFail != 0 {
		k.failWaiting(now)
	}
	if *due&dueElsewhere != 0 {
		k.elsewhere.endWithoutDial(now)
	}
	if *due&dueServe != 0 {
		k.elsewhere.serve(now)
		k.dispatcher.serve(now)
	}
	k.grow(now)
	if k.queue.n > 0 {
		k.boundPending(now)
	}
	*due = 0
}

// grow starts the dials that are wanted and allowed. If the waiters cannot get a place, it
// fails them.
func (k *machine) grow(now time.Time) {
	if k.growth.paused { // each request reads its cache line: write it only if needed
		k.growth.paused = false
	}
	if k.isolation.queue.n > 0 {
		k.isolate(now)
	}
	for !k.conns.closed && k.growth.wants() {
		if !k.growth.mayDial() {
			k.pruner.makeRoom(nil, now)
			break
		}
		if ok, pause := k.governor.ready(now); !ok {
			k.pausing(pause)
			break
		}
		k.dials.start(aim{waiting: k.growth.waiting()}, now)
	}
}

// boundPending updates which waiters dials will serve. The other waiters are pending: if there are more than
// max_pending, it refuses the newest of them, or those that fair queueing chooses.
func (k *machine) boundPending(now time.Time) {
	served := k.growth.servedByDials()
	k.queue.setServedByDials(served, now)
	for {
		newest := k.queue.tail
		w := k.queue.popOverflow(k.opts.MaxPending)
		if w == nil {
			return
		}
		if w != newest {
			k.stats.fairEvicted.Add(1)
			k.queue.setServedByDials(served, now) // a dial was to serve w
		}
		k.do.answer(w, waitResult{full: k.full()})
	}
}

// pausing runs when the pool wants a connection and every address pauses. It fails the waiters
// if the pool is hopeless, and the addresses pause because dials to them failed. Resent requests continue to
// wait.
func (k *machine) pausing(pause pause) {
	k.growth.paused = k.governor.dialing == 0
	if k.growth.hopeless() && !pause.mayWait {
		k.dispatcher.fail(func(w *waiter) error {
			switch {
			case w.resent: // the next connection serves it
				return nil
			case w.pending:
				return k.governor.paused
			default:
				return k.governor.lastError
			}
		})
	}
	if k.queue.n+k.isolation.queue.n > 0 && !pause.until.IsZero() {
		k.do.growAgain(pause.until)
	}
}

// failWaiting fails waiters after a failed dial, unless some address has not failed. A waiter
// that may outlast further failed dials waits for the next dial instead. If adbuffer's machine is the
// reason, it fails them once that lasts.
func (k *machine) failWaiting(now time.Time) {
	local := k.governor.shortage.failures > 0
	switch {
	case !k.growth.hopeless():
		return
	case local && !k.governor.shortage.lasts():
		return
	case !local && k.governor.hasWorkingAddress():
		return
	}
	k.dispatcher.fail(func(w *waiter) error {
		switch {
		case w.resent:
			return nil
		case local:
			return k.governor.lastError // a further dial would fail too, at no cost of the request's
		case w.redials > 0:
			w.redials--
			w.extend(k.opts.waitForDial(), now)
			k.do.wake(w, w.until(now))
			return nil
		default:
			return k.governor.lastError
		}
	})
}

// isolate starts the dials that isolated requests wait for, as far as the limits allow.
func (k *machine) isolate(now time.Time) {
	s := &k.isolation
	for s.queue.n > s.dialing && s.dialing < max(1, k.opts.MaxDials/4) && k.conns.isolated+s.dialing < k.opts.isolatedLimit() {
		if !k.growth.mayDialIsolated() {
			k.pruner.makeRoomForIsolated()
			break
		}
		if ok, pause := k.governor.ready(now); !ok {
			k.pausing(pause)
			break
		}
		k.dials.start(aim{waiting: true, isolated: true}, now)
	}
	s.queue.setServedByDials(s.dialing, now)
	for {
		w := s.queue.popOverflow(k.opts.MaxPending)
		if w == nil {
			return
		}
		full := k.full()
		full.pending, full.isolated, full.isolatedLimit = s.queue.pending, k.conns.isolated, k.opts.isolatedLimit()
		k.do.answer(w, waitResult{full: full})
	}
}

// revive finds out whether endpoints that get no requests work again: it dials each endpoint
// whose pause has ended. An ejected endpoint then gets one request. If endpoints have health checks,
// it gets a check instead. An alarm and the janitor call it again when it is due.
func (k *machine) revive(now time.Time) {
	s := &k.conns.endpoints
	if k.conns.closed || len(s.all) == 1 || s.State() != balancer.Enabled {
		return
	}
	probes, next := s.DueProbes(now)
	for _, b := range probes {
		k.probes.begin(s.all[b.Index], now)
	}
	for _, e := range s.all {
		if !e.lost() || e.dialing > 0 {
			continue
		}
		switch at := k.governor.dialableAt(e, now); {
		case !at.After(now):
			k.dials.startFor(e, now)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	if !next.IsZero() {
		k.do.reviveAgain(next)
	}
}

// useRoom dials an active endpoint that is short of connections, before grow dials any endpoint for the waiters. revive
// has dialled those that are not active.
func (k *machine) useRoom(now time.Time) {
	if e := k.pruner.shortEndpoint(now); e != nil && e.Active() && !k.conns.closed && k.growth.mayDial() {
		k.dials.start(aim{endpoint: e}, now)
	}
}
