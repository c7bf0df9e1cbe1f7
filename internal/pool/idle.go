package pool

import (
	"math/rand/v2"
	"time"

	"adbuffer/internal/upstream"
)

// expiredLocked says why m, which has a place free, should not be lent any
// more; NotClosed where it may.
func (p *Pool) expiredLocked(m *member, now time.Time) upstream.CloseReason {
	switch {
	case !m.retireAt.IsZero() && !now.Before(m.retireAt):
		return upstream.ClosedMaxAge
	case p.opts.IdleTimeout > 0 && m.inUse == 0 && now.Sub(m.used) >= p.opts.IdleTimeout:
		return upstream.ClosedIdle
	default:
		return upstream.NotClosed
	}
}

// janitorPeriod is how often idle connections are looked after. An expired one
// is never lent, however late the janitor comes.
const janitorPeriod = time.Second

// janitor closes what has expired, finds what the peer has closed, and keeps
// min_idle connections open. It runs from New to Close.
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

// sweepBatch bounds how many idle connections are out of the pool's reach while
// the janitor looks at them.
const sweepBatch = 8

func (p *Pool) sweep(now time.Time) {
	p.mu.Lock()
	p.expireIdleLocked(now)
	p.ageSharedLocked(now)
	p.mu.Unlock()

	p.sweepClosed(now)

	p.mu.Lock()
	p.growLocked(now)
	p.mu.Unlock()
}

// expireIdleLocked retires what has been idle for too long or is too old. The
// order of use says nothing about age, so all are looked at.
func (p *Pool) expireIdleLocked(now time.Time) {
	kept := p.idle[:0]
	for _, m := range p.idle {
		if r := p.expiredLocked(m, now); r != upstream.NotClosed {
			p.retireLocked(m, r)
		} else {
			kept = append(kept, m)
		}
	}
	clear(p.idle[len(kept):])
	p.idle = kept
}

// sweepClosed looks at connections that have been idle for a while and drops
// those that the peer has closed, so that the gauges tell the truth and the
// next request need not find out. Their age at that moment is what is learned
// about the peer's idle limit.
func (p *Pool) sweepClosed(now time.Time) {
	for at := 0; ; {
		var batch [sweepBatch]*member
		p.mu.Lock()
		n := 0
		for n < sweepBatch && at < len(p.idle) && now.Sub(p.idle[at].used) >= janitorPeriod {
			batch[n] = p.idle[at]
			n++
			p.idle = append(p.idle[:at], p.idle[at+1:]...)
		}
		p.mu.Unlock()
		if n == 0 {
			return
		}
		alive := 0
		for _, m := range batch[:n] {
			if m.conn.Idle() {
				batch[alive] = m
				alive++
			} else {
				p.lostIdle(m)
			}
		}
		p.mu.Lock()
		at = min(at, len(p.idle))
		p.idle = append(p.idle[:at], append(append([]*member(nil), batch[:alive]...), p.idle[at:]...)...)
		at += alive
		p.serveLocked(now)
		if p.dead {
			p.closeIdleLocked()
		}
		p.mu.Unlock()
	}
}

// lostIdle removes an idle connection that the peer has closed.
func (p *Pool) lostIdle(m *member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recountLocked(m)
	p.retireLocked(m, m.conn.CloseReason())
}

// jitter returns d, give or take share of it.
func jitter(d time.Duration, share float64) time.Duration {
	return time.Duration(float64(d) * (1 - share + 2*share*rand.Float64()))
}
