package pool

import (
	"math/rand/v2"
	"slices"
	"time"

	"adbuffer/internal/wire/exchange"
)

// lookPeriod is how often the janitor asks for the SSP's addresses while connections are open. The
// dialer returns addresses from memory. It looks names up in the background when its result is too
// old.
const lookPeriod = 2 * time.Second

// followAddresses applies DNS changes to the connections. It replaces connections to removed
// addresses within renewal, and opens a connection to each new address, as far as the limits allow. A
// failed look-up changes nothing.
func (p *Pool) followAddresses(now time.Time) {
	p.mu.Lock()
	due := len(p.conns.members) > 0 && now.Sub(p.looked) >= lookPeriod
	if due {
		p.looked = now
	}
	p.mu.Unlock()
	if !due {
		return
	}
	addrs, err := p.dialer.Addresses(p.ctx)
	if err != nil || len(addrs) == 0 {
		return
	}
	p.mu.Lock()
	defer p.end(now)
	g := &p.governor
	if p.closed || len(g.known) == 0 || len(addrs) == len(g.known) && &addrs[0] == &g.known[0] {
		return
	}
	before := make(map[*endpoint][]exchange.Address)
	for _, e := range p.conns.endpoints.all {
		before[e] = e.addrs
	}
	g.share(addrs, now)
	for e, old := range before {
		p.reconcileLocked(e, old, now)
	}
}

// reconcileLocked applies a change of e's addresses to its connections.
func (p *Pool) reconcileLocked(e *endpoint, before []exchange.Address, now time.Time) {
	if len(e.addrs) == 0 || slices.Equal(before, e.addrs) {
		return // the last good result stays in use
	}
	for m := range p.conns.members {
		if m.ep == e && !slices.Contains(e.addrs, m.addr) {
			m.retireSoon(exchange.ClosedDNS, now)
		}
	}
	known := func(a exchange.Address) bool { return slices.Contains(before, a) }
	added := slices.DeleteFunc(slices.Clone(e.addrs), known)
	if len(added) == 0 || e.Barred() {
		return
	}
	// The next dials go to the new addresses.
	e.addrs, e.turn = slices.Concat(added, slices.DeleteFunc(e.addrs, func(a exchange.Address) bool { return !known(a) })), 0
	for range min(len(added), maxNewAddresses) {
		if p.conns.next() > exchange.HTTP1 && p.growth.sharedFull() || !p.dialForLocked(e, now) {
			return
		}
	}
}

// maxNewAddresses bounds the dials that one change of DNS starts for an endpoint.
const maxNewAddresses = 8

// retireSoon retires m within renewal, at a random moment, because of why.
func (m *member) retireSoon(why exchange.CloseReason, now time.Time) {
	if at := now.Add(rand.N(renewal)); m.retireAt.IsZero() || at.Before(m.retireAt) {
		m.retireAt, m.retireWhy = at, why
	}
}
