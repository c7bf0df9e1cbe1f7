package pool

import (
	"time"

	"adbuffer/internal/upstream"
)

// demotion keeps HTTP/2 from being offered to a peer that breaks it, or refuses
// it. Each time lasts twice as long as the one before, and then HTTP/2 is tried
// again: by the next dial, which is filed by what it negotiates. Guarded by
// pool.mu.
type demotion struct {
	until  time.Time
	lasts  time.Duration
	faults int       // lately
	since  time.Time // the first of faults
}

const (
	demotedFor    = 30 * time.Second
	demotedAtMost = 10 * time.Minute
	// faultsToDemote within faultWindow demote: one could be an accident.
	faultsToDemote = 3
	faultWindow    = time.Minute
)

func (d *demotion) on(now time.Time) bool { return now.Before(d.until) }

// fault notes one, and reports whether it is one too many.
func (d *demotion) fault(now time.Time) bool {
	if now.Sub(d.since) > faultWindow {
		d.faults, d.since = 0, now
	}
	d.faults++
	return d.faults >= faultsToDemote
}

func (d *demotion) begin(now time.Time) {
	d.faults = 0
	if d.lasts == 0 || now.Sub(d.until) > 4*d.lasts { // it went well for long enough
		d.lasts = demotedFor
	} else {
		d.lasts = min(2*d.lasts, demotedAtMost)
	}
	d.until = now.Add(d.lasts)
}

// breached is told of an exchange on m that failed since the peer breaks
// HTTP/2, or refuses it. Where ALPN may choose, one that refuses turns the pool
// to HTTP/1 at once, and enough that break it do. A connection that breaks down
// fails all its exchanges, but is one fault.
func (p *Pool) breached(m *member, e *upstream.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.demotableLocked() {
		return
	}
	now := time.Now()
	if !e.RefusesHTTP2 {
		if m.broken {
			return
		}
		m.broken = m.conn.CloseReason() != upstream.NotClosed
	}
	if e.RefusesHTTP2 || p.demotion.fault(now) {
		p.demoteLocked(now)
		p.growLocked(now)
	}
}

// demotableLocked reports whether the pool could turn to HTTP/1, and has not.
func (p *Pool) demotableLocked() bool {
	return !p.dead && p.opts.Protocol == upstream.Unknown && !p.demotion.on(time.Now())
}

// demoteLocked turns the pool to HTTP/1 for a while.
func (p *Pool) demoteLocked(now time.Time) {
	p.demotion.begin(now)
	p.stats.demotions.Add(1)
	p.protocol, p.seenPlaces = upstream.HTTP1, 0
	for len(p.shared) > 0 {
		p.retireLocked(p.shared[0], upstream.ClosedError)
	}
}
