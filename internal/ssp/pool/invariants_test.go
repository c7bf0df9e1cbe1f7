package pool

import (
	"slices"
	"testing"
)

// wantInvariants checks what holds after each event: places, the one state of each connection, and
// the counts of the queues, the endpoints and the governor. Pool.mu is held. It runs after most events of all
// tests, so it makes no maps, and formats nothing that holds.
func wantInvariants(t testing.TB, k *machine) {
	t.Helper()
	wantConsistentMembers(t, &k.conns)
	wantConsistentEndpoints(t, &k.conns)
	for _, q := range []*queue{&k.queue, &k.isolation.queue} {
		wantConsistentQueue(t, q)
		if k.opts.MaxPending >= 0 && q.pending > k.opts.MaxPending && !q.worst().resent {
			t.Errorf("%d requests are pending, %d may be", q.pending, k.opts.MaxPending)
		}
		if k.conns.closed && q.n > 0 {
			t.Errorf("%d requests wait after Close", q.n)
		}
	}
	for _, w := range k.elsewhere.waiters {
		if !w.queued || !w.inElsewhere || w.avoid == "" {
			t.Errorf("a request waits for another endpoint, and should not: %+v", w)
		}
	}
	if n := len(k.elsewhere.waiters); k.conns.closed && n > 0 {
		t.Errorf("%d requests wait for dials to other endpoints after Close", n)
	}
	wantConsistentGovernor(t, k)
	if k.conns.due != 0 {
		t.Errorf("the event ended, but %b is still due", k.conns.due)
	}
}

// wantConsistentMembers checks that each connection is in exactly one state, and what the pool counts
// of them.
func wantConsistentMembers(t testing.TB, c *connections) {
	t.Helper()
	idle, aging := 0, 0
	for _, e := range c.endpoints.all {
		idle += len(e.idle.list)
		for i, m := range e.idle.list {
			if _, open := c.members[m]; !open || m.ep != e || m.draining || !m.exclusive() || m.inUse > 0 || slices.Contains(e.idle.list[:i], m) {
				t.Errorf("a connection is idle, and should not be, or is idle twice: %+v", m)
			}
		}
	}
	for i, m := range c.shared.list {
		if _, open := c.members[m]; !open || m.draining || m.exclusive() || slices.Contains(c.shared.list[:i], m) {
			t.Errorf("a connection is in the shared list, and should not be, or is there twice: %+v", m)
		}
		if m.aging {
			aging++
		}
	}
	inUse, places, draining, isolated, single, free, shared := 0, 0, 0, 0, 0, 0, 0
	for m := range c.members {
		inUse += m.inUse
		places += m.counted
		if m.inUse < 0 || m.inUse > m.counted || m.exclusive() && m.inUse > 1 {
			t.Errorf("%d of %d places of a connection are in use: %+v", m.inUse, m.counted, m)
		}
		switch {
		case m.draining:
			draining++
		case !m.exclusive():
			shared++
		case m.inUse == 0:
			free++
		}
		if m.single && !m.draining {
			single++
		}
		if m.isolated {
			isolated++
			if !m.exclusive() || m.inUse != 1 {
				t.Errorf("an isolated request shares its connection: %+v", m)
			}
		}
	}
	if checked := free - idle; checked < 0 || checked > c.checking || shared != len(c.shared.list) {
		t.Errorf("of %d free exclusive connections %d are idle and %d are being checked; of %d multiplexed ones %d are in the shared list",
			free, idle, c.checking, shared, len(c.shared.list))
	}
	if aging != c.shared.aging || isolated != c.isolated || single != c.single {
		t.Errorf("%d multiplexed connections are aging, %d are in use by isolated requests, and %d have one place; the pool counts %d, %d and %d",
			aging, isolated, single, c.shared.aging, c.isolated, c.single)
	}
	if inUse != c.inUse || places != c.places || draining != c.draining {
		t.Errorf("the sums over members are inUse %d, places %d, draining %d; the pool's are %d, %d, %d", inUse, places, draining, c.inUse, c.places, c.draining)
	}
	if c.inUse > c.places || c.closing < 0 {
		t.Errorf("%d places in use of %d, and %d connections are being closed", c.inUse, c.places, c.closing)
	}
}

// wantConsistentEndpoints checks what the pool counts for each endpoint.
func wantConsistentEndpoints(t testing.TB, c *connections) {
	t.Helper()
	kept, unusable := c.checking, 0
	for _, e := range c.endpoints.all {
		open, shared := 0, 0
		for m := range c.members {
			if m.ep == e && !m.draining {
				open++
			}
		}
		for _, m := range c.shared.list {
			if m.ep == e {
				shared++
			}
		}
		kept += len(e.idle.list)
		if e.Barred() {
			unusable += e.open
		}
		if e.open != open || len(e.shared) != shared {
			t.Errorf("%s has %d open and %d multiplexed connections, want %d and %d", e.Name, e.open, len(e.shared), open, shared)
		}
	}
	if kept != c.kept || unusable != c.unusable {
		t.Errorf("%d connections are idle and %d unusable; the pool counts %d and %d", kept, unusable, c.kept, c.unusable)
	}
}

// wantConsistentQueue checks the counts of a queue, and that the pending requests are its last ones.
func wantConsistentQueue(t testing.TB, q *queue) {
	t.Helper()
	n, pending, alone, front := 0, 0, 0, true
	var before *waiter
	for w := q.head; w != nil; before, w = w, w.next {
		n++
		if !w.queued || w.inElsewhere || w.prev != before {
			t.Errorf("a request is in the queue, and should not be: %+v", w)
		}
		if w.front && !front {
			t.Errorf("a request that had a place before waits behind one that had none")
		}
		front = w.front
		if w == q.firstPending && pending > 0 {
			t.Errorf("%d requests before the first pending one are pending", pending)
		}
		if w.pending {
			pending++
		}
		if w.alone {
			alone++
		}
	}
	if q.tail != before || n != q.n || pending != q.pending || alone != q.alone {
		t.Errorf("%d requests wait, %d pending, %d alone; the queue counts %d, %d, %d", n, pending, alone, q.n, q.pending, q.alone)
	}
	if (q.firstPending == nil) != (pending == 0) {
		t.Errorf("%d requests are pending; the first is %+v", pending, q.firstPending)
	}
	if q.fair == nil {
		return
	}
	fair := q.tail != nil && !q.tail.front
	if first := q.fair.First(); fair != (first != nil) || fair && (!first.Value.queued || first.Value.front) {
		t.Errorf("fair queueing should choose a request: %v; it chooses %+v", fair, first)
	}
}

// wantConsistentGovernor checks what the governor counts of dials.
func wantConsistentGovernor(t testing.TB, k *machine) {
	t.Helper()
	g := &k.governor
	endpoints, addresses, decided, isolated := 0, 0, g.dialing-g.undecided, k.isolation.dialing
	for _, e := range k.conns.endpoints.all {
		if e.dialing < 0 {
			t.Errorf("%d dials to %s", e.dialing, e.Name)
		}
		endpoints += e.dialing
	}
	for a, s := range g.states {
		if s.dialing < 0 {
			t.Errorf("%d dials to %v", s.dialing, a)
		}
		addresses += s.dialing
	}
	if g.undecided < 0 || decided < addresses || endpoints > g.dialing {
		t.Errorf("%d dials, %d of them without an address; %d to addresses, %d to endpoints", g.dialing, g.undecided, addresses, endpoints)
	}
	if g.offering < 0 || g.offering > g.dialing || g.onTrial < 0 || g.onTrial > addresses || isolated < 0 || isolated > g.dialing {
		t.Errorf("%d dials offer HTTP/2, %d are trials, and %d are for isolated requests, of %d", g.offering, g.onTrial, isolated, g.dialing)
	}
}
