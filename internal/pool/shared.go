package pool

import (
	"time"

	"adbuffer/internal/upstream"
)

// leastBusyLocked returns the multiplexed connection with the fewest exchanges
// that has a free place, or nil. For a request that must be alone on a pipelined
// connection it must have none: then those who wait behind that request wait
// until one is empty, which is soon, since nobody is put on it meanwhile.
//
// A scan: there are max_http2_conns of them, four by default. Of pipelined ones
// there may be max_conns; the first idle one ends the scan.
func (p *Pool) leastBusyLocked(alone bool) *member {
	var best *member
	for _, m := range p.shared {
		if m.inUse < m.places && (best == nil || m.inUse < best.inUse) {
			if best = m; m.inUse == 0 {
				break
			}
		}
	}
	if best != nil && !best.takes(alone) {
		return nil
	}
	return best
}

// takes reports whether m, multiplexed, has a place for a request that must, or
// need not, be alone.
func (m *member) takes(alone bool) bool {
	return m.inUse < m.places && (!alone || m.inUse == 0 || m.protocol != upstream.HTTP1Pipelined)
}

// wantsSharedLocked reports whether the multiplexed connections are so busy, or
// so close to their end, that another is worth opening before it is needed: all
// that will stay have half their places in use.
func (p *Pool) wantsSharedLocked() bool {
	if len(p.shared) == 0 {
		return p.replace
	}
	return !p.easyLocked(nil)
}

// easyLocked reports whether a multiplexed connection other than m, which will
// stay, has more than half its places free.
func (p *Pool) easyLocked(m *member) bool {
	for _, other := range p.shared {
		if other != m && !other.aging && 2*other.inUse < other.places {
			return true
		}
	}
	return false
}

// ageSharedLocked gives up the multiplexed connections that are too old or have
// idled too long. One that is in use, and whose place the others could not
// easily take, goes only once another has come.
func (p *Pool) ageSharedLocked(now time.Time) {
	for i := len(p.shared) - 1; i >= 0; i-- {
		m := p.shared[i]
		switch r := p.expiredLocked(m, now); {
		case r == upstream.NotClosed:
		case m.inUse > 0 && !p.easyLocked(m) && now.Sub(m.retireAt) < replaceWithin:
			if !m.aging {
				m.aging = true
				p.aging++
			}
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
