package pool

import (
	"slices"
	"time"

	"adbuffer/internal/upstream"
)

// popIdleLocked takes the idle connection that was used last, or returns nil.
// Those that must not be lent any more are retired on the way.
func (p *Pool) popIdleLocked(now time.Time) *member {
	for n := len(p.idle); n > 0; n = len(p.idle) {
		m := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		r := p.expiredLocked(m, now)
		if r == upstream.NotClosed {
			return m
		}
		p.retireLocked(m, r)
	}
	return nil
}

// expiredLocked says why m should not be lent any more; NotClosed where it may.
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

func (p *Pool) sweep(now time.Time) {
	p.mu.Lock()
	p.high.note(now, p.inUse, p.possibleLocked())
	p.expireIdleLocked(now)
	p.ageSharedLocked(now)
	p.mu.Unlock()

	p.sweepClosed(now)
	p.reckon(now)

	p.mu.Lock()
	p.learned.sweepEnded()
	p.growLocked(now)
	p.mu.Unlock()
}

// expireIdleLocked retires what has been idle for too long or is too old. The
// order of use says nothing about age, so all are looked at.
func (p *Pool) expireIdleLocked(now time.Time) {
	p.idle = slices.DeleteFunc(p.idle, func(m *member) bool {
		r := p.expiredLocked(m, now)
		if r != upstream.NotClosed {
			p.retireLocked(m, r)
		}
		return r != upstream.NotClosed
	})
}

// sweepBatch is how many of n idle connections are out of the pool's reach while
// the janitor looks at them: few, but so many that a large pool does not spend
// its time on taking them out and in.
func sweepBatch(n int) int { return max(8, n/64) }

// sweepClosed looks at connections that have been idle for a while and drops
// those that the peer has closed, so that the gauges tell the truth and the
// next request need not find out. Who comes meanwhile waits for them as for a
// dial, if there is nothing else.
func (p *Pool) sweepClosed(now time.Time) {
	var batch []*member
	for at := 0; ; at += len(batch) {
		p.mu.Lock()
		end, most := min(at, len(p.idle)), sweepBatch(len(p.idle))
		for end < len(p.idle) && end-at < most && now.Sub(p.idle[end].used) >= janitorPeriod {
			end++
		}
		start := min(at, end)
		batch = append(batch[:0], p.idle[start:end]...)
		p.idle = slices.Delete(p.idle, start, end)
		p.swept = len(batch)
		p.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		for _, m := range batch {
			m.conn.Idle()
		}
		p.mu.Lock()
		p.swept = 0
		batch = slices.DeleteFunc(batch, func(m *member) bool {
			switch {
			case m.conn.CloseReason() != upstream.NotClosed:
				if age := now.Sub(m.used); m.isIdleClose(age) {
					p.learned.sweptClosed(knownAge(age))
				}
				p.endedLocked(m, now)
			case p.dead || p.surplusLocked() > 0:
				p.retireLocked(m, upstream.ClosedDrain)
			default:
				return false
			}
			return true
		})
		p.idle = slices.Insert(p.idle, min(at, len(p.idle)), batch...)
		p.serveLocked(now)
		p.mu.Unlock()
	}
}
