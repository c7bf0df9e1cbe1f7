package pool

import (
	"slices"
	"sync/atomic"
	"time"

	"adbuffer/internal/upstream"
)

// member is one connection as the pool keeps it. It is the connection's Owner.
//
//	dialled ──▶ lending ──▶ draining ──▶ gone
//
// While it lends, an exclusive member is lent, or idle (in Pool.idle, or in the
// janitor's hands), and a multiplexed one is in Pool.shared. Draining, it lends
// no more and goes when nothing is outstanding on it.
type member struct {
	pool     *Pool
	addr     Address       // set before it is filed
	edition  int           // of Options, when its dial began; as above
	conn     upstream.Conn // nil until dialled
	protocol upstream.Protocol

	// guarded by pool.mu

	inUse    int  // places lent, or held by abandoned answers
	places   int  // that it lends: Conn.Places as of the last count, 0 if draining
	counted  int  // how often it is in Pool.places: places, or inUse where that is more
	requests int  // lent so far
	refused  int  // of requests, those that the SSP did not process
	allowed  int  // places that it may lend on probation, 0 = all
	alone    bool // lent to an exchange that nothing may be outstanding beside
	fresh    bool // lent to the first exchange right after its dial
	aging    bool // too old, but of use: goes when another has come
	broken   bool // broke HTTP/2 and closed, which is known; see breached
	draining bool
	why      upstream.CloseReason // it drains
	used     time.Time            // last lent or freed
	idleFor  time.Duration        // before it was lent last; means little where multiplexed
	opened   time.Time
	retireAt time.Time // zero = never

	worked atomic.Bool // an exchange on it had a response; only where multiplexed
}

// exclusive reports whether m carries one exchange at a time.
func (m *member) exclusive() bool { return m.protocol == upstream.HTTP1 }

// Freed implements upstream.Owner.
func (m *member) Freed(held time.Duration) { m.pool.free(m, max(held, 0)) }

// Changed implements upstream.Owner.
func (m *member) Changed() {
	p := m.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, open := p.members[m]; !open {
		return // not filed yet, which looks for itself, or gone
	}
	now := time.Now()
	if m.conn.CloseReason() == upstream.NotClosed {
		p.recountLocked(m)
	} else {
		if m.exclusive() {
			p.idle = slices.DeleteFunc(p.idle, func(i *member) bool { return i == m })
		}
		if age := now.Sub(m.used); m.inUse == 0 && !m.draining && m.isIdleClose(age) {
			p.learned.note(age)
		}
		p.endedLocked(m, now)
	}
	p.serveLocked(now)
}

// unused is how long a place was held that no exchange ran on.
const unused = time.Duration(-1)

// free takes back one place of m, which was in use for held.
func (p *Pool) free(m *member, held time.Duration) {
	if held != unused {
		p.stats.hold.ObserveDuration(held)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.freeLocked(m, held)
}

func (p *Pool) freeLocked(m *member, held time.Duration) {
	if m.inUse <= 0 {
		panic("BUG: a place was given back twice")
	}
	m.inUse--
	p.inUse--
	m.fresh, m.alone = false, false
	switch {
	case held == unused:
		m.requests--
	case m.exclusive():
		m.used = m.used.Add(held) // since it was lent: no need to ask the clock
	case m.inUse == 0:
		m.used = time.Now()
	}
	if p.dead && p.inUse == 0 {
		close(p.out)
	}
	switch {
	case m.conn.CloseReason() != upstream.NotClosed:
		now := time.Now()
		p.endedLocked(m, now)
		p.growLocked(now)
	case m.draining:
		p.retireLocked(m, m.why)
		p.growLocked(time.Now())
	default:
		if m.allowed > 0 && held != unused {
			p.earnLocked(m)
		}
		p.recountLocked(m)
		if m.exclusive() {
			p.parkLocked(m)
		} else if p.queue.n > 0 {
			p.serveLocked(time.Now())
		}
	}
}

// parkLocked lends an exclusive connection to the first who waits, or puts it
// among the idle ones.
func (p *Pool) parkLocked(m *member) {
	switch {
	case p.dead || p.surplusLocked() > 0:
		p.retireLocked(m, upstream.ClosedDrain)
	case p.queue.n > 0:
		now := time.Now()
		if r := p.expiredLocked(m, now); r != upstream.NotClosed {
			p.retireLocked(m, r)
			p.growLocked(now)
			return
		}
		p.handLocked(m, now, served{})
		p.settleLocked(now)
	case len(p.idle)+p.swept >= p.opts.MaxIdle:
		p.retireLocked(m, upstream.ClosedIdle)
	default:
		p.idle = append(p.idle, m)
	}
}

// recountLocked takes m's places, which may have changed, into the pool's sum.
// What is in use counts as a place even if the connection has fewer by now.
func (p *Pool) recountLocked(m *member) {
	m.places = 0
	if !m.draining {
		if m.places = m.conn.Places(); m.places > 0 && m.protocol == p.protocol {
			p.seenPlaces = m.places
		}
		if m.allowed > 0 {
			m.places = min(m.places, m.allowed)
		}
		if m.alone {
			m.places = min(m.places, 1)
		}
	}
	if n := max(m.places, m.inUse); n != m.counted {
		p.places += n - m.counted
		m.counted = n
	}
}

// endedLocked gives m up, whose connection takes no more requests.
func (p *Pool) endedLocked(m *member, now time.Time) {
	atOnce := m.requests == 0 && !m.draining && now.Sub(m.opened) < p.opts.BackoffMin
	p.retireLocked(m, m.conn.CloseReason())
	if atOnce { // else the next one would follow at once, for ever
		p.governor.wastedOn(m.addr, now)
		p.shutAtOnceLocked(m, now)
	}
}

// retireLocked makes m lend no more, and removes it once nothing is outstanding
// on it. It must not be among the idle ones.
func (p *Pool) retireLocked(m *member, why upstream.CloseReason) {
	p.drainLocked(m, why)
	if m.inUse == 0 {
		p.removeLocked(m)
	}
}

// drainLocked makes m lend no more; the first reason stays.
func (p *Pool) drainLocked(m *member, why upstream.CloseReason) {
	if !m.draining {
		if why == upstream.NotClosed {
			why = upstream.ClosedError
		}
		m.draining, m.why = true, why
		p.draining++
		if m.aging {
			m.aging = false
			p.aging--
		}
		if i := slices.Index(p.shared, m); i >= 0 {
			p.shared = slices.Delete(p.shared, i, i+1)
			planned := why == upstream.ClosedIdle || why == upstream.ClosedDrain
			p.replace = p.replace || !planned && time.Since(m.used) < replaceWithin
		}
	}
	p.recountLocked(m)
}

// removeLocked closes and forgets m, which drains, on which nothing is
// outstanding, and which is not among the idle ones.
func (p *Pool) removeLocked(m *member) {
	if _, open := p.members[m]; !open {
		return
	}
	delete(p.members, m)
	p.draining--
	p.stats.closed(m)
	if m.conn.CloseReason() != upstream.NotClosed {
		return
	}
	// Closing may write (TLS's close_notify): not under the lock. Until it is
	// done the connection takes its share of max_conns.
	p.closing++
	p.wg.Go(func() {
		m.conn.Close(m.why)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.closing--
		p.growLocked(time.Now())
	})
}
