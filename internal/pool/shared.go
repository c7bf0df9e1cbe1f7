package pool

import (
	"time"

	"adbuffer/internal/upstream"
)

// leastBusyLocked returns the multiplexed connection with the fewest exchanges
// that has a free place, or nil.
//
// A scan: there are max_http2_conns of them, four by default. Of pipelined ones
// there may be max_conns; the first idle one ends the scan.
func (p *Pool) leastBusyLocked() *member {
	var best *member
	for _, m := range p.shared {
		if m.inUse < m.places && (best == nil || m.inUse < best.inUse) {
			if best = m; m.inUse == 0 {
				break
			}
		}
	}
	return best
}

// wantsSharedLocked reports whether the multiplexed connections are so busy, or
// so close to their end, that another is worth opening before it is needed: all
// have half their places in use, or one is being given up while it works.
func (p *Pool) wantsSharedLocked() bool {
	if len(p.shared) == 0 {
		return p.replace
	}
	for _, m := range p.shared {
		if 2*m.inUse < m.places && !m.aging {
			return false
		}
	}
	return true
}

// ageSharedLocked gives up the multiplexed connections that are too old or have
// idled too long. One that is the last of its pool, and in use, goes only once
// another has come.
func (p *Pool) ageSharedLocked(now time.Time) {
	for i := len(p.shared) - 1; i >= 0; i-- {
		m := p.shared[i]
		switch r := p.expiredLocked(m, now); {
		case r == upstream.NotClosed:
		case m.inUse > 0 && len(p.shared) == 1 && now.Sub(m.retireAt) < replaceWithin:
			m.aging = true
		default:
			p.retireLocked(m, r)
		}
	}
}

// replaceWithin bounds how long an old connection stays because no other can be
// opened: a peer that refuses new ones must not keep old ones alive for ever.
// It is also how recently a connection must have been used to be replaced at
// once when it goes.
const replaceWithin = time.Minute
