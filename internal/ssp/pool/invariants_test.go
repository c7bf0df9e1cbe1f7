package pool

import (
	"testing"

	"adbuffer/internal/test/testsupport"
)

// wantInvariants checks what holds after each event: places, the one state of each connection, and
// the counts of the queues, the endpoints and the governor. Pool.mu is held.
func wantInvariants(t testing.TB, p *machine) {
	t.Helper()
	wantConsistentMembers(t, &p.conns)
	wantConsistentEndpoints(t, &p.conns)
	for _, q := range []*queue{&p.queue, &p.conns.isolation.queue} {
		wantConsistentQueue(t, q)
		testsupport.True(t, p.opts.MaxPending < 0 || q.pending <= p.opts.MaxPending || q.worst().resent,
			"%d requests are pending, %d may be", q.pending, p.opts.MaxPending)
		testsupport.True(t, !p.closed || q.n == 0, "%d requests wait after Close", q.n)
	}
	for _, w := range p.queue.elsewhere {
		testsupport.True(t, w.queued && w.elsewhere && w.avoid != "", "a request waits for another endpoint, and should not: %+v", w)
	}
	testsupport.True(t, !p.closed || len(p.queue.elsewhere) == 0, "%d requests wait for dials to other endpoints after Close", len(p.queue.elsewhere))
	wantConsistentGovernor(t, p)
	testsupport.Equal(t, p.conns.due, 0, "the event ended, but %b is still due")
}

// wantConsistentMembers checks that each connection is in exactly one state, and what the pool counts
// of them.
func wantConsistentMembers(t testing.TB, c *connections) {
	t.Helper()
	idle, shared := map[*member]bool{}, map[*member]bool{}
	for _, e := range c.endpoints.all {
		for _, m := range e.idle.list {
			testsupport.True(t, !idle[m] && m.ep == e, "a connection is idle twice, or at another endpoint: %+v", m)
			idle[m] = true
		}
	}
	aging := 0
	for _, m := range c.shared.list {
		testsupport.True(t, !shared[m], "a connection is in the shared list twice: %+v", m)
		shared[m] = true
		if m.aging {
			aging++
		}
	}
	testsupport.Equal(t, aging, c.shared.aging, "%d multiplexed connections are aging; the pool counts %d", c.shared.aging)
	inUse, places, draining, isolated, single, checked := 0, 0, 0, 0, 0, 0
	for m := range c.members {
		inUse += m.inUse
		places += m.counted
		testsupport.True(t, m.inUse >= 0 && m.inUse <= m.counted, "%d of %d places of a connection are in use", m.inUse, m.counted)
		switch {
		case m.draining:
			draining++
			testsupport.True(t, !idle[m] && !shared[m], "a connection that drains takes requests: %+v", m)
		case m.exclusive():
			testsupport.True(t, !shared[m] && m.inUse <= 1 && (!idle[m] || m.inUse == 0), "an exclusive connection is in the shared list, or idle and in use: %+v", m)
			if m.inUse == 0 && !idle[m] {
				checked++
			}
		default:
			testsupport.True(t, shared[m] && !idle[m], "a multiplexed connection is not in the shared list, or idle: %+v", m)
		}
		if m.single && !m.draining {
			single++
		}
		if m.isolated {
			isolated++
			testsupport.True(t, m.exclusive() && m.inUse == 1, "an isolated request shares its connection: %+v", m)
		}
		delete(idle, m)
		delete(shared, m)
	}
	testsupport.True(t, len(idle)+len(shared) == 0, "%d connections are idle, and %d shared, but not open", len(idle), len(shared))
	testsupport.AtMost(t, checked, c.checking, "%d connections are neither idle nor in use, but only %d are being checked", c.checking)
	testsupport.True(t, isolated == c.isolation.inUse && single == c.isolation.single,
		"%d connections are in use by isolated requests, and %d have one place; the pool counts %d and %d", isolated, single, c.isolation.inUse, c.isolation.single)
	testsupport.True(t, inUse == c.inUse && places == c.places && draining == c.draining,
		"the sums over members are inUse %d, places %d, draining %d; the pool's are %d, %d, %d", inUse, places, draining, c.inUse, c.places, c.draining)
	testsupport.True(t, c.inUse <= c.places, "%d places in use of %d", c.inUse, c.places)
	testsupport.True(t, c.closing >= 0, "%d connections are being closed", c.closing)
}

// wantConsistentEndpoints checks what the pool counts for each endpoint.
func wantConsistentEndpoints(t testing.TB, c *connections) {
	t.Helper()
	open, shared, kept, unusable := map[*endpoint]int{}, map[*endpoint]int{}, c.checking, 0
	for m := range c.members {
		if !m.draining {
			open[m.ep]++
		}
	}
	for _, m := range c.shared.list {
		shared[m.ep]++
	}
	for _, e := range c.endpoints.all {
		kept += len(e.idle.list)
		if e.Barred() {
			unusable += e.open
		}
		testsupport.True(t, e.open == open[e] && len(e.shared) == shared[e], "%s has %d open and %d multiplexed connections, want %d and %d", e.Name, e.open, len(e.shared), open[e], shared[e])
	}
	testsupport.True(t, kept == c.kept && unusable == c.unusable, "%d connections are idle and %d unusable; the pool counts %d and %d", kept, unusable, c.kept, c.unusable)
}

// wantConsistentQueue checks the counts of a queue, and that the pending requests are its last ones.
func wantConsistentQueue(t testing.TB, q *queue) {
	t.Helper()
	n, pending, alone, front := 0, 0, 0, true
	var before *waiter
	for w := q.head; w != nil; before, w = w, w.next {
		n++
		testsupport.True(t, w.queued && !w.elsewhere && w.prev == before, "a request is in the queue, and should not be: %+v", w)
		testsupport.True(t, front || !w.front, "a request that had a place before waits behind one that had none")
		front = w.front
		if w == q.firstPending {
			testsupport.Equal(t, pending, 0, "%d requests before the first pending one are pending")
		}
		if w.pending {
			pending++
		}
		if w.alone {
			alone++
		}
	}
	testsupport.True(t, q.tail == before && n == q.n && pending == q.pending && alone == q.alone,
		"%d requests wait, %d pending, %d alone; the queue counts %d, %d, %d", n, pending, alone, q.n, q.pending, q.alone)
	testsupport.True(t, (q.firstPending == nil) == (pending == 0), "%d requests are pending; the first is %+v", pending, q.firstPending)
	if q.fair == nil {
		return
	}
	fair := q.tail != nil && !q.tail.front
	if first := q.fair.First(); fair != (first != nil) || fair && (!first.Value.queued || first.Value.front) {
		t.Errorf("fair queueing should choose a request: %v; it chooses %+v", fair, first)
	}
}

// wantConsistentGovernor checks what the governor counts of dials.
func wantConsistentGovernor(t testing.TB, p *machine) {
	t.Helper()
	g := &p.governor
	endpoints, addresses, decided := 0, 0, g.dialing-g.undecided
	for _, e := range p.conns.endpoints.all {
		testsupport.True(t, e.dialing >= 0, "%d dials to %s", e.dialing, e.Name)
		endpoints += e.dialing
	}
	for a, s := range g.states {
		testsupport.True(t, s.dialing >= 0, "%d dials to %v", s.dialing, a)
		addresses += s.dialing
	}
	testsupport.True(t, g.undecided >= 0 && decided >= addresses, "%d dials, %d of them without an address; %d to addresses", g.dialing, g.undecided, addresses)
	testsupport.True(t, endpoints <= g.dialing, "%d dials to endpoints, %d in all", endpoints, g.dialing)
	testsupport.True(t, g.offering >= 0 && g.offering <= g.dialing && g.onTrial >= 0 && g.onTrial <= addresses, "%d dials offer HTTP/2 and %d are trials, of %d", g.offering, g.onTrial, g.dialing)
	isolated := p.conns.isolation.dialing
	testsupport.True(t, isolated >= 0 && isolated <= g.dialing, "%d dials for isolated requests, of %d", isolated, g.dialing)
}
