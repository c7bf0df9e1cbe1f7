package pool

import (
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

func TestRequestWithAStaleConnectionWaitsAtTheFront(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns = 1 }, func(t *testing.T, s *fakeSSP, p *Pool) {
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
		testsupport.Equal(t, p.Snapshot().Stale, 1, "%d stale connections counted")
		testsupport.Equal(t, p.closedFor(exchange.ClosedUnsolicited), 1, "%d connections closed for unsolicited bytes")
		a, b := p.Snapshot().Arrivals, p.Snapshot().Lent
		testsupport.True(t, a == 3 && b == 3, "%d requests arrived and %d got one, want 3 and 3", a, b)
	})
}

func TestAllStaleConnectionsAreSkipped(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		all := askAll(t, p, 4, sec)
		pass(20 * time.Millisecond)
		doAll(all)
		for _, n := range []int{3, 2, 0} { // connection 1 stays: it is not the last used
			s.conn(n).closeItself(exchange.ClosedByPeer)
		}
		r := acquire(t, p)
		testsupport.True(t, r.took == 0 && r.conn().reason == exchange.NotClosed, "got connection %d after %v", r.conn().n, r.took)
		testsupport.Equal(t, s.openCount(), 1, "%d connections are open")
		r.do()
	})
}

func TestNewConnectionIsUsedWithoutACheck(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		acquire(t, p).do()
		testsupport.Equal(t, s.conn(0).checks, 0, "a new connection was checked %d times before its first request")
		acquire(t, p).do()
		testsupport.Equal(t, s.conn(0).checks, 1, "a connection was checked %d times before its second request")
	})
}

func TestPlaceReleasedUnusedGoesToTheNextWaiter(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns = 1 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		held := acquire(t, p)
		r := ask(t, p, sec)
		held.place.Release(held.ex)
		r.wantConn(0, 0)
		r.place.Release(r.ex)
		acquire(t, p).do()
		testsupport.Equal(t, p.Snapshot().Holds, 1, "%d holds were observed: an unused place has no hold")
		for _, m := range openMembers(p) {
			testsupport.Equal(t, m.requests, 1, "the connection has carried %d requests")
		}
	})
}

func TestPlaceReleasedTwicePanics(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, _ *fakeSSP, p *Pool) {
		r := acquire(t, p)
		r.place.Release(r.ex)
		defer func() {
			testsupport.True(t, recover() != nil, "no panic")
		}()
		r.place.Release(r.ex)
	})
}

func TestPlaceKnowsTheHostOfItsEndpoint(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		r := acquire(t, p)
		testsupport.Equal(t, r.place.Host(), "ssp0.test", "the host is %q")
		s.locked(func() {
			s.addrs = []exchange.Address{{Endpoint: exchange.Endpoint{Authority: "ssp0.test:8443"}, AddrPort: s.addrs[0].AddrPort}}
		})
		other := acquire(t, p)
		testsupport.Equal(t, other.place.Host(), "ssp0.test:8443", "the host is %q")
		r.do()
		other.do()
	})
}
