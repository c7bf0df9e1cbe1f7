package pool

import (
	"testing"
	"time"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// These functions look into the machine, or prepare its state. Other tests of the pool see what it reports: places,
// errors, snapshots and metrics. Of the test files, only this one, those of the machine (courses_test.go,
// invariants_test.go) and those of a single part use private fields of it.

// verifyEvents makes p check its invariants after events. Large pools are not checked after each event, so that
// the cost of an event is bounded.
func verifyEvents(t testing.TB, p *Pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	checked := 0
	p.verify = func(p *Pool) {
		checked += 30
		if size := len(p.conns.members) + p.queue.n + p.isolation.queue.n + len(p.elsewhere.waiters); checked > size {
			checked = 0
			wantInvariants(t, &p.machine)
		}
	}
}

// unverified stops the checks of verifyEvents, which allocate.
func unverified(p *Pool) { event(p, func(p *Pool) { p.verify = nil }) }

// wantConsistent checks the pool's state, and its counts against those of the fakeSSP.
func wantConsistent(t testing.TB, p *Pool, s *fakeSSP) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	wantInvariants(t, &p.machine)
	var opened, closed uint64
	for i := range p.stats.openedBy {
		opened += p.stats.openedBy[i].Load()
	}
	for i := range p.stats.closedBy {
		closed += p.stats.closedBy[i].Load()
	}
	testsupport.Equal(t, opened, closed+uint64(len(p.conns.members)), "%d connections opened, %d closed, %d open", closed, len(p.conns.members))
	testsupport.Equal(t, p.stats.closedBy[exchange.NotClosed].Load(), 0, "%d connections were closed without a reason")
	waits := uint64(0)
	for _, h := range p.stats.acquire {
		waits += h.Count()
	}
	testsupport.AtLeast(t, p.stats.arrivals.Load(), waits, "%d requests arrived, %d got one or an error", waits)
	s.mu.Lock()
	defer s.mu.Unlock()
	testsupport.AtMost(t, s.maxOpen, p.opts.MaxConns, "%d connections were open or being dialled at once, %d may be", p.opts.MaxConns)
	testsupport.True(t, s.maxDials <= p.opts.MaxDials, "%d dials were under way at once, %d may be", s.maxDials, p.opts.MaxDials)
}

// event runs change as an event.
func event(p *Pool, change func(*Pool)) {
	p.mu.Lock()
	defer p.end(time.Now())
	change(p)
}

// inside returns what read finds.
func inside[T any](p *Pool, read func(k *machine) T) T {
	p.mu.Lock()
	defer p.mu.Unlock()
	return read(&p.machine)
}

// maxConnsOf returns how many connections the pool allows itself.
func maxConnsOf(p *Pool) int { return inside(p, func(k *machine) int { return k.size.maxConns() }) }

// surplusOf returns how many connections exceed max_conns.
func surplusOf(p *Pool) int { return inside(p, func(k *machine) int { return k.size.surplus() }) }

// multiplexedOf returns how many multiplexed connections stay, and how many may.
func multiplexedOf(p *Pool) (n, limit int) {
	return inside(p, func(k *machine) int { return k.conns.shared.staying() }), inside(p, func(k *machine) int { return k.size.sharedLimit() })
}

// queuedIn returns how many requests are in the queue. It allocates nothing.
func queuedIn(p *Pool) int { return inside(p, func(k *machine) int { return k.queue.n }) }

// limitWaitsOf returns how many requests have waited because of the limit.
func limitWaitsOf(p *Pool) uint64 { return p.stats.limitWaits.Load() }

// checkingNow returns how many idle connections the janitor checks now.
func checkingNow(p *Pool) int { return inside(p, func(k *machine) int { return k.conns.checking }) }

// knownStates returns of how many addresses the governor keeps the state.
func knownStates(p *Pool) int {
	return inside(p, func(k *machine) int { return len(k.governor.states) })
}

// idleTimeoutOf returns after how long idle connections close.
func idleTimeoutOf(p *Pool) time.Duration {
	return inside(p, func(k *machine) time.Duration { return k.conns.idleRule.timeout() })
}

// learn makes the pool learn that the SSP closed n connections that were idle for 20 s.
func learn(p *Pool, n int) {
	event(p, func(p *Pool) {
		for range n {
			p.learned.note(20 * sec)
		}
	})
}

// firstPlaces returns how many places a new connection has because of probation; 0 = all.
func firstPlaces(p *Pool) int {
	return inside(p, func(k *machine) int { return k.conns.probation.places })
}

// beginProbation gives new connections n places.
func beginProbation(p *Pool, n int) { event(p, func(p *Pool) { p.conns.probation.places = n }) }

// demoteNow switches the pool to HTTP/1 for a while.
func demoteNow(p *Pool) { event(p, func(p *Pool) { p.demotion.demote(time.Now()) }) }

// dialTo starts a dial to endpoint i.
func dialTo(p *Pool, i int) {
	event(p, func(p *Pool) { p.dials.start(aim{endpoint: p.conns.endpoints.all[i]}, time.Now()) })
}

// useTurn uses the turn of the endpoint that is next.
func useTurn(p *Pool) { event(p, func(p *Pool) { p.conns.endpoints.UseTurn() }) }

// ejectNow ejects endpoint i.
func ejectNow(p *Pool, i int) { p.eject(p.conns.endpoints.all[i], time.Now()) }

// probeOf returns the step of the probe of endpoint i.
func probeOf(p *Pool, i int) balancer.Probe {
	return inside(p, func(k *machine) balancer.Probe { return k.conns.endpoints.all[i].Probe() })
}

// conn returns the connection of the request's place.
func (r *request) conn() *fakeConn { return r.place.m.conn.(*fakeConn) }

// offered returns how many places the connection of the request's place has.
func (r *request) offered() int { return r.place.m.places }

// openMember is an open connection, as the pool sees it.
type openMember struct {
	conn                     *fakeConn
	inUse, requests, version int
	unused                   time.Duration // since a place was last acquired or released
}

// openMembers returns the open connections.
func openMembers(p *Pool) []openMember {
	return inside(p, func(k *machine) (all []openMember) {
		for m := range k.conns.members {
			all = append(all, openMember{m.conn.(*fakeConn), m.inUse, m.requests, m.version, time.Since(m.used)})
		}
		return all
	})
}

// idleOrder returns the idle connections, the least recently used one first.
func idleOrder(p *Pool) []int {
	return inside(p, func(k *machine) (n []int) {
		for _, m := range k.conns.endpoints.all[0].idle.list {
			n = append(n, m.conn.(*fakeConn).n)
		}
		return n
	})
}

// slowDown makes the check of the least recently used idle connection slow.
func slowDown(p *Pool) {
	event(p, func(p *Pool) {
		m := p.conns.endpoints.all[0].idle.list[0]
		m.conn = slowIdle{m.conn.(*fakeConn)}
	})
}
