package pool

import (
	"time"

	"adbuffer/internal/upstream"
)

// demotion keeps HTTP/2 from being offered to a peer that breaks it. Each time
// lasts twice as long as the one before, and then HTTP/2 is tried again: by the
// next dial, which is filed by what it negotiates. Guarded by pool.mu.
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

// fault notes one, and reports whether the peer is to be demoted now.
func (d *demotion) fault(now time.Time) bool {
	if d.on(now) {
		return false
	}
	if now.Sub(d.since) > faultWindow {
		d.faults, d.since = 0, now
	}
	if d.faults++; d.faults < faultsToDemote {
		return false
	}
	d.faults = 0
	switch {
	case d.lasts == 0 || now.Sub(d.until) > 4*d.lasts: // it went well for long enough
		d.lasts = demotedFor
	default:
		d.lasts = min(2*d.lasts, demotedAtMost)
	}
	d.until = now.Add(d.lasts)
	return true
}

// breached is told of exchanges that failed since the peer breaks, or refuses,
// HTTP/2. Where ALPN may choose, enough of them turn the pool to HTTP/1.
func (p *Pool) breached() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.opts.Protocol != upstream.Unknown || !p.demotion.fault(now) {
		return
	}
	p.stats.demotions.Add(1)
	p.protocol = upstream.HTTP1
	for i := len(p.shared) - 1; i >= 0; i-- {
		p.retireLocked(p.shared[i], upstream.ClosedError)
	}
	p.growLocked(now)
}
