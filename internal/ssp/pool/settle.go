package pool

import "time"

// due says what an event has made necessary. Events only set it: what depends on the whole pool is
// decided once, when the event ends, by settleLocked.
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
)

// end ends an event that happened at now: it settles what the event has made necessary, and unlocks.
// The zero time means that the event did not read the clock.
func (p *Pool) end(now time.Time) {
	p.settleLocked(now)
	p.unlock()
}

// unlock ends the use of the pool's state after settleLocked.
func (p *Pool) unlock() {
	if p.verify != nil {
		p.verify(p)
	}
	p.mu.Unlock()
}

// settleLocked does what the event has made necessary, in an order in which no step changes what an
// earlier step has decided:
//
//	revive ──▶ fail ──▶ end waits elsewhere ──▶ serve ──▶ dial ──▶ expect and refuse
//
// Dials for endpoints without requests come first, because waiters need not fail while such a dial is
// under way. Free places are given before the pool dials for the remaining waiters.
func (p *Pool) settleLocked(now time.Time) {
	due := p.conns.due
	if due == 0 {
		return
	}
	if now.IsZero() {
		now = time.Now()
	}
	if due&dueRevive != 0 {
		p.reviveLocked(now)
	}
	if due&dueFail != 0 {
		p.dialFailedLocked(now)
	}
	if due&dueElsewhere != 0 {
		p.dialElsewhereEndedLocked(now)
	}
	if p.conns.due&dueServe != 0 { // an earlier step may have set it
		p.serveLocked(now)
	}
	p.growLocked(now)
	p.expectLocked(now)
	p.conns.due = 0
}

// serveLocked gives free places to waiters, in their order.
func (p *Pool) serveLocked(now time.Time) {
	p.serveElsewhereLocked(now)
	p.serveIsolatedLocked(now)
	for p.queue.n > 0 {
		w := p.queue.first()
		to := p.conns.pick(wish{avoid: w.avoid, alone: w.alone, resent: w.resent}, now)
		if to.m == nil {
			break
		}
		p.giveLocked(to, waitResult{}, now) // growLocked dials for the queue, and so for to.passedOver
	}
}

// growLocked starts the dials that are wanted and allowed. If the waiters cannot get a place, it
// fails them.
func (p *Pool) growLocked(now time.Time) {
	if p.growth.paused { // each request reads its cache line: write it only if needed
		p.growth.paused = false
	}
	if p.conns.isolation.queue.n > 0 {
		p.isolateLocked(now)
	}
	for !p.closed && p.growth.wants() {
		if !p.growth.mayDial() {
			p.makeRoomLocked(nil)
			break
		}
		if ok, pause := p.governor.ready(now); !ok {
			p.pauseLocked(pause)
			break
		}
		p.startDialLocked(aim{waiting: p.growth.waiting()}, now)
	}
}

// expectLocked updates which requests dials will serve. If too many other requests wait, it refuses
// the newest ones, or those that fair queueing chooses.
func (p *Pool) expectLocked(now time.Time) {
	served := p.growth.willServe()
	p.queue.expect(served, now)
	for {
		newest := p.queue.tail
		w := p.queue.popOverflow(p.opts.MaxPending)
		if w == nil {
			return
		}
		if w != newest {
			p.stats.fairEvicted.Add(1)
			p.queue.expect(served, now) // a dial was expected to serve w
		}
		w.ready <- waitResult{full: p.fullLocked()}
	}
}
