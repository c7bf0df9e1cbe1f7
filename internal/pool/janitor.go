package pool

import (
	"slices"
	"time"

	"adbuffer/internal/upstream"
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
	p.conns.high.note(now, p.conns.load())
	p.conns.expireIdle(now)
	p.conns.expireShared(now)
	p.mu.Unlock()

	p.sweepClosed(now)
	p.followAddresses(now)
	p.updateNeed(now)

	p.mu.Lock()
	p.learned.sweepEnded()
	p.startSlowlyLocked(now)
	p.reviveLocked(now)
	p.growLocked(now)
	p.mu.Unlock()
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
		p.conns.checking = 0
		p.serveLocked(now)
		p.mu.Unlock()
	}
}

// checkedLocked drops a checked connection if it is closed or not needed, and reports whether it
// did.
func (p *Pool) checkedLocked(m *member, now time.Time) (dropped bool) {
	switch {
	case m.draining: // drained during the check
	case m.conn.CloseReason() != upstream.NotClosed:
		p.learned.sweptClosed(m, now.Sub(m.used))
		p.endedLocked(m, now)
	case p.closed || p.conns.surplus() > 0 || p.conns.unwanted(m.ep):
		p.conns.drain(m, upstream.ClosedDrain)
	default:
		return false
	}
	return true
}

// renewal is the time within which SetOptions replaces connections with outdated settings. The pool
// replaces them one by one, so that it does not dial all of them at once.
const renewal = 5 * time.Second

// replaceWithin bounds how long an old connection stays because the pool can open no other one. An
// SSP that refuses new connections must not keep old ones alive forever. The pool replaces a closed
// connection at once only if it was used within this time.
const replaceWithin = time.Minute

// expired returns why m should take no more requests, or NotClosed.
func (m *member) expired(o *Options, now time.Time) upstream.CloseReason {
	switch {
	case !m.retireAt.IsZero() && !now.Before(m.retireAt):
		return upstream.ClosedMaxAge
	case o.IdleTimeout > 0 && m.inUse == 0 && now.Sub(m.used) >= o.IdleTimeout:
		return upstream.ClosedIdle
	default:
		return upstream.NotClosed
	}
}

// setMaxAge sets when m is too old: max_age ±10 % after it was opened, so that connections that
// were opened together do not close together.
func (m *member) setMaxAge(maxAge time.Duration) {
	m.retireAt = time.Time{}
	if maxAge > 0 {
		m.retireAt = m.opened.Add(jitter(maxAge, 0.1))
	}
}

func (m *member) renew(o *Options, now time.Time) {
	if m.version != o.ConnVersion {
		m.retireSoon(now)
	}
}

// expireIdle drains the idle connections that are too old or were idle for too long. The list is
// not ordered by age, so it checks all of them.
func (c *connections) expireIdle(now time.Time) {
	for _, e := range c.endpoints.all {
		e.idle.list = slices.DeleteFunc(e.idle.list, func(m *member) bool {
			why := m.expired(c.opts, now)
			if why != upstream.NotClosed {
				c.kept--
				c.drain(m, why)
			}
			return why != upstream.NotClosed
		})
	}
}

// expireShared drains the multiplexed connections that are too old or were idle for too long. A
// connection stays, marked as aging, if it is in use and the other connections are not roomy. It
// drains once another connection is open.
func (c *connections) expireShared(now time.Time) {
	for i := len(c.shared.list) - 1; i >= 0; i-- {
		m := c.shared.list[i]
		switch why := m.expired(c.opts, now); {
		case why == upstream.NotClosed:
		case m.inUse > 0 && !c.shared.roomy(m) && now.Sub(m.retireAt) < replaceWithin:
			if !m.aging {
				m.aging = true
				c.shared.aging++
			}
		default:
			c.drain(m, why)
		}
	}
}
