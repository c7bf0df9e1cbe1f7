package pool

import (
	"testing"
	"time"

	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

func TestRequestWithAStaleConnectionWaitsAtTheFront(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		p := start(t, s, func(o *Options) { o.MaxConns = 1 })
		held := acquire(t, p)
		first := ask(t, p, sec)
		second := ask(t, p, sec)
		// first finds unsolicited bytes on the connection.
		s.conn(0).unsolicited = true
		held.do()
		first.wantWaits()
		pass(10 * time.Millisecond)
		first.wantConn(1, 10*time.Millisecond)
		second.wantWaits()
		first.do()
		second.wantConn(1, 10*time.Millisecond)
		second.do()
		if n := p.stats.stale.Load(); n != 1 {
			t.Errorf("%d stale connections counted, want 1", n)
		}
		if n := p.stats.closedBy[upstream.ClosedUnsolicited].Load(); n != 1 {
			t.Errorf("%d connections closed for unsolicited bytes, want 1", n)
		}
		if a, b := p.stats.arrivals.Load(), p.stats.acquire[reused].Count()+p.stats.acquire[dialed].Count()+p.stats.acquire[waited].Count(); a != 3 || b != 3 {
			t.Errorf("%d requests arrived and %d got one, want 3 and 3", a, b)
		}
	})
}

func TestAllStaleConnectionsAreSkipped(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		p := start(t, s, nil)
		var all []*request
		for range 4 {
			all = append(all, ask(t, p, sec))
		}
		pass(20 * time.Millisecond)
		for _, r := range all {
			r.do()
		}
		for _, n := range []int{3, 2, 0} { // connection 1 stays: it is not the last used
			s.conn(n).closeItself(upstream.ClosedByPeer)
		}
		r := acquire(t, p)
		if r.took != 0 || r.conn().reason != upstream.NotClosed {
			t.Errorf("got connection %d after %v", r.conn().n, r.took)
		}
		if open := s.openCount(); open != 1 {
			t.Errorf("%d connections are open, want 1", open)
		}
		r.do()
	})
}

func TestNewConnectionIsUsedWithoutACheck(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		p := start(t, s, nil)
		acquire(t, p).do()
		if n := s.conn(0).checks; n != 0 {
			t.Errorf("a new connection was checked %d times before its first request", n)
		}
		acquire(t, p).do()
		if n := s.conn(0).checks; n != 1 {
			t.Errorf("a connection was checked %d times before its second request, want 1", n)
		}
	})
}

func TestPlaceReleasedUnusedGoesToTheNextWaiter(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		p := start(t, s, func(o *Options) { o.MaxConns = 1 })
		held := acquire(t, p)
		r := ask(t, p, sec)
		held.place.Release(held.ex)
		r.wantConn(0, 0)
		r.place.Release(r.ex)
		acquire(t, p).do()
		if n := p.stats.hold.Count(); n != 1 {
			t.Errorf("%d holds were observed, want 1: an unused place has no hold", n)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for m := range p.conns.members {
			if m.requests != 1 {
				t.Errorf("the connection has carried %d requests, want 1", m.requests)
			}
		}
	})
}

func TestPlaceReleasedTwicePanics(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := start(t, newFakeSSP(t), nil)
		r := acquire(t, p)
		r.place.Release(r.ex)
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		r.place.Release(r.ex)
	})
}

func TestPlaceKnowsTheHostOfItsEndpoint(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		p := start(t, s, nil)
		r := acquire(t, p)
		if h := r.place.Host(); h != "ssp0.test" {
			t.Errorf("the host is %q", h)
		}
		s.mu.Lock()
		s.addrs = []upstream.Address{{Endpoint: upstream.Endpoint{Authority: "ssp0.test:8443"}, AddrPort: s.addrs[0].AddrPort}}
		s.mu.Unlock()
		other := acquire(t, p)
		if h := other.place.Host(); h != "ssp0.test:8443" {
			t.Errorf("the host is %q", h)
		}
		r.do()
		other.do()
	})
}
