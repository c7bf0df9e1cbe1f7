package pool

import (
	"slices"
	"time"

	"adbuffer/internal/upstream"
)

// addedLocked opens a first connection to each endpoint that a reload added, if the SSP has any
// connections. The next look-up brings the other addresses.
func (p *Pool) addedLocked(added, removed []*endpoint, now time.Time) {
	if len(added)+len(removed) == 0 {
		return
	}
	p.governor.forget()
	if len(p.conns.members) == 0 {
		return
	}
	for i, e := range added {
		if e.Active() && i < maxNewAddresses {
			p.dialForLocked(e, now)
		}
	}
	p.growLocked(now)
}

// forget forgets the addresses of removed endpoints. The list is a new slice, so the next look-up
// assigns addresses to new endpoints.
func (g *governor) forget() {
	g.known = slices.DeleteFunc(slices.Clone(g.known), func(a upstream.Address) bool { return g.endpoints.of(a) == nil })
}
