package pool

import (
	"slices"
	"time"

	"adbuffer/internal/wire/exchange"
)

// janitorPeriod is how often the janitor checks idle connections. An expired connection gets no
// request, however late the janitor is.
const janitorPeriod = time.Second

// janitor runs once per janitorPeriod. It closes expired connections, finds connections that the
// SSP has closed, keeps min_idle connections open, and updates the need. New starts it, and it
// stops when p.ctx ends.
func (p *Pool) janitor() {
	tick := time.NewTicker(janitorPeriod)
	defer tick.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case now := <-tick.C:
			p.sweep(now)
		}
	}
}

func (p *Pool) sweep(now time.Time) {
	p.mu.Lock()
	p.conns.noteSaturation()
	p.demotion.turn(now)
	p.conns.expireIdle(now)
	p.conns.expireShared(now)
	p.mu.Unlock()

	p.sweepClosed(now)
	p.followAddresses(now)
	p.updateNeed(now)

	p.mu.Lock()
	p.learned.sweepEnded()
	p.conns.idleRule.growLater(now)
	p.conns.endpoints.ContinueSlowStart(now)
	p.conns.due |= dueRevive | dueGrow
	p.end(now)
}

// sweepClosed drops idle connections that the SSP has closed. So the gauges are right, and few
// requests find their connection closed. It checks one batch at a time outside the lock. A request
// that finds no other place waits for the batch.
func (p *Pool) sweepClosed(now time.Time) {
	p.mu.Lock()
	all := p.conns.endpoints.all // a reload creates a new slice
	p.mu.Unlock()
	for _, e := range all {
		p.sweepClosedOf(e, now)
	}
}

func (p *Pool) sweepClosedOf(e *endpoint, now time.Time) {
	var batch []*member
	for at := 0; ; at += len(batch) {
		p.mu.Lock()
		batch = e.idle.startCheck(batch, at, now.Add(-janitorPeriod))
		p.conns.checking = len(batch)
		p.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		for _, m := range batch {
			m.conn.Idle()
		}
		p.mu.Lock()
		n := len(batch)
		batch = slices.DeleteFunc(batch, func(m *member) bool { return p.checkedLocked(m, now) })
		e.idle.endCheck(batch, at, n-len(batch))
		p.conns.drainIdle(p.conns.kept - p.opts.MaxIdle) // a reload may have lowered it during the check
		p.conns.checking = 0
		p.conns.due |= dueServe
		p.end(now)
	}
}

// checkedLocked drops a checked connection if it is closed or not needed, and reports whether it
// did.
func (p *Pool) checkedLocked(m *member, now time.Time) (dropped bool) {
	switch {
	case m.draining: // drained during the check
	case m.conn.CloseReason() != exchange.NotClosed:
		p.learned.sweptClosed(m, now.Sub(m.used))
		p.drainClosedLocked(m, now)
	case p.unneededLocked(m.ep):
		p.conns.drain(m, exchange.ClosedDrain)
	default:
		return false
	}
	return true
}
