package pool

import (
	"slices"
	"time"

	"adbuffer/internal/wire/exchange"
)

// sharedList holds the multiplexed connections that take new requests. Guarded by Pool.mu.
type sharedList struct {
	list  []*member
	aging int // connections that drain once another connection is open
	// replace says that a useful connection closed. The pool opens another connection before a request
	// needs it.
	replace bool
}

// better reports whether m suits the request better than other. A request that an SSP did not process
// goes to the connection that has carried the fewest: it is the last one that the SSP closes because of
// their number. Otherwise such a request may meet one close after the other.
func (w wish) better(m, other *member) bool {
	if w.resent && m.requests != other.requests {
		return m.requests < other.requests
	}
	return m.inUse < other.inUse
}

// leastInUse returns the connection with the fewest requests if it has a place for the request, or
// nil. A connection that has just refused a request is only used if no other has a place. A request
// that must be alone on a pipelined connection needs an empty one. While it waits, the requests
// behind it wait too, so a connection soon becomes empty.
//
// It scans the list, which has max_http2_conns connections, four by default. There may be max_conns
// pipelined connections; the first idle one ends the scan.
func leastInUse(list []*member, w wish, now time.Time) *member {
	var best, refusing *member
	for _, m := range list {
		of := &best
		if !m.avoidUntil.IsZero() && now.Before(m.avoidUntil) {
			of = &refusing
		}
		if m.inUse < m.places && (*of == nil || w.better(m, *of)) {
			*of = m
		}
		if best != nil && best.inUse == 0 && !w.resent {
			break
		}
	}
	if best == nil {
		best = refusing
	}
	if best != nil && !best.takes(w.alone) {
		return nil
	}
	return best
}

// emptiest returns the connection with the fewest requests, whether or not it has a free place.
func (s *sharedList) emptiest() *member {
	return slices.MinFunc(s.list, func(a, b *member) int { return a.inUse - b.inUse })
}

// ofMostCrowded returns a connection of the most crowded endpoint, or nil if no endpoint has several.
func (s *sharedList) ofMostCrowded() (found *member) {
	for _, m := range s.list {
		if m.ep.open > 1 && (found == nil || m.ep.crowding() > found.ep.crowding()) {
			found = m
		}
	}
	return found
}

// staying returns how many connections are not aging.
func (s *sharedList) staying() int { return len(s.list) - s.aging }

// roomy reports whether a connection other than m stays and has more than half of its places free.
func (s *sharedList) roomy(m *member) bool {
	for _, other := range s.list {
		if other != m && !other.aging && 2*other.inUse < other.places {
			return true
		}
	}
	return false
}

// wantsAnother reports whether the pool should open another connection before a request needs it:
// every connection that stays has half its places in use.
func (s *sharedList) wantsAnother() bool {
	if len(s.list) == 0 {
		return s.replace
	}
	return !s.roomy(nil)
}

// remove removes m, which is draining, if it is in the list. After an unplanned end, it asks the
// clock whether m was in use lately.
func (s *sharedList) remove(m *member, clock func() time.Time) {
	i := slices.Index(s.list, m)
	if i < 0 {
		return
	}
	s.list = slices.Delete(s.list, i, i+1)
	if m.aging {
		m.aging = false
		s.aging--
	}
	planned := m.why == exchange.ClosedIdle || m.why == exchange.ClosedDrain
	s.replace = s.replace || !planned && clock().Sub(m.used) < replaceWithin
}
