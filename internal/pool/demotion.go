package pool

import (
	"time"

	"adbuffer/internal/upstream"
)

// demotion keeps the pool from offering HTTP/2 to an SSP that refuses it, or that violates it
// repeatedly. Each demotion lasts twice as long as the one before. Then the next dial offers HTTP/2
// again. Guarded by Pool.mu.
type demotion struct {
	until      time.Time
	lasts      time.Duration
	violations int       // violations after since
	since      time.Time // of the first violation
}

const (
	demotedFor    = 30 * time.Second
	demotedAtMost = 10 * time.Minute
	// maxViolations within violationWindow cause a demotion. A single violation may be an accident.
	maxViolations   = 3
	violationWindow = time.Minute
)

func (d *demotion) on(now time.Time) bool { return now.Before(d.until) }

// violated records a violation, and reports whether there were too many.
func (d *demotion) violated(now time.Time) bool {
	if now.Sub(d.since) > violationWindow {
		d.violations, d.since = 0, now
	}
	d.violations++
	return d.violations >= maxViolations
}

// violatedOn records that an exchange on m failed because the SSP violates or refuses HTTP/2. It
// reports whether the pool must demote the SSP. A violation may fail all exchanges of a connection;
// it counts once.
func (d *demotion) violatedOn(m *member, e *upstream.Error, now time.Time) bool {
	switch {
	case e.RefusesHTTP2:
		return true
	case m.violated:
		return false
	}
	m.violated = m.conn.CloseReason() != upstream.NotClosed
	return d.violated(now)
}

func (d *demotion) begin(now time.Time) {
	d.violations = 0
	if d.lasts == 0 || now.Sub(d.until) > 4*d.lasts { // HTTP/2 worked for long enough
		d.lasts = demotedFor
	} else {
		d.lasts = min(2*d.lasts, demotedAtMost)
	}
	d.until = now.Add(d.lasts)
}

// demotableLocked reports whether the pool may switch to HTTP/1 and has not done so.
func (p *Pool) demotableLocked(now time.Time) bool {
	return !p.closed && p.opts.Protocol == upstream.Unknown && !p.demotion.on(now)
}

// demoteLocked switches the pool to HTTP/1 for a while.
func (p *Pool) demoteLocked(now time.Time) {
	p.demotion.begin(now)
	p.stats.demotions.Add(1)
	p.conns.forecast = forecast{protocol: upstream.HTTP1}
	p.conns.drainShared(upstream.ClosedError)
}
