package pool

import (
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// fill opens n connections and leaves them idle.
func fill(t testing.TB, p *Pool, n int) {
	t.Helper()
	all := askAll(t, p, n, sec)
	pass(100 * msec)
	doAll(all)
	synctest.Wait()
}

func (p *Pool) closedFor(r exchange.CloseReason) int {
	return counted(p, "pool_connections_closed_total", r.String())
}

func TestAtMostMaxIdleConnectionsAreKept(t *testing.T) {
	for _, maxIdle := range []int{0, 2} {
		inBubble(t, func(o *Options) { o.MaxIdle = maxIdle }, func(t *testing.T, s *fakeSSP, p *Pool) {
			fill(t, p, 4)
			testsupport.Equal(t, s.openCount(), maxIdle, "%d connections are open, want max_idle, %d", maxIdle)
			fill(t, p, 4)
			testsupport.Equal(t, s.openCount(), maxIdle, "%d connections are open, want max_idle, %d", maxIdle)
		})
	}
}

func TestJanitorDropsIdleConnectionsClosedByTheSSP(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxIdle = 50, 50 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		fill(t, p, 50)
		for n, c := range s.conns {
			if n%3 != 0 {
				c.closeItself(exchange.ClosedByPeer)
			}
		}
		pass(2 * sec)
		snap := p.Snapshot()
		testsupport.Equal(t, snap.Idle[exchange.HTTP1], 17, "%d connections are idle, want the 17 that are not closed")
		testsupport.Equal(t, p.closedFor(exchange.ClosedByPeer), 33, "%d connections closed by the SSP")
		wantConsistent(t, p, s)
		all := acquireAll(t, p, 17)
		for _, r := range all {
			testsupport.Equal(t, r.took, 0, "a request waited %v, but connections are idle")
		}
		snap = p.Snapshot()
		testsupport.True(t, snap.Idle[exchange.HTTP1] == 0 && snap.PlacesInUse == 17, "%d idle, %d in use, want 0 and 17", snap.Idle[exchange.HTTP1], snap.PlacesInUse)
		doAll(all)
	})
}

func TestJanitorKeepsTheOrderOfUse(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxIdle = 30, 30 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		fill(t, p, 30)
		before := idleOrder(p)
		pass(5 * sec)
		after := idleOrder(p)
		testsupport.MustEqual(t, len(after), 30, "%d connections are idle")
		for i := range before {
			testsupport.MustTrue(t, before[i] == after[i], "the order was %v and is %v", before, after)
		}
		testsupport.AtLeast(t, s.conn(0).checks, 3, "the janitor checked %d times in 5 s, want at least 3")
	})
}

// slowIdle is a connection with a slow check, so that a request arrives during the check.
type slowIdle struct{ *fakeConn }

func (c slowIdle) Idle() bool {
	time.Sleep(5 * msec)
	return c.fakeConn.Idle()
}

func TestRequestWaitsForAConnectionThatTheJanitorChecks(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxPending = 1, 0 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		fill(t, p, 1)
		var r *request
		p.duringCheck(func() { r = ask(t, p, sec) })
		testsupport.MustTrue(t, r.err == nil && r.ended(), "the request: ended %v, %v", r.ended(), r.err)
		testsupport.Equal(t, s.dialCount(), 1, "%d dials")
	})
}

// A lowered max_idle also closes connections that the janitor checks.
func TestMaxIdleHoldsForCheckedConnections(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		fill(t, p, 3)
		p.duringCheck(func() {
			changeOptions(p, func(o *Options) { o.MaxIdle = 1 })
		})
		testsupport.Equal(t, s.openCount(), 1, "%d connections are open")
	})
}

// duringCheck calls change while the janitor checks idle connections, and returns after the check.
func (p *Pool) duringCheck(change func()) {
	slowDown(p)
	for checkingNow(p) == 0 {
		pass(msec)
	}
	change()
	pass(10 * msec)
}

func TestMinIdleConnectionsAreKeptOpen(t *testing.T) {
	for _, protocol := range []exchange.Protocol{exchange.HTTP1, exchange.HTTP2} {
		runInBubble(t, protocol.String(), func(o *Options) { o.Protocol, o.MinIdle, o.IdleTimeout = exchange.Unknown, 2, 20*sec }, func(t *testing.T, s *fakeSSP, p *Pool) {
			s.always(dialResult{after: 10 * msec, protocol: protocol})
			pass(5 * sec)
			testsupport.MustEqual(t, s.openCount(), 2, "%d connections are open before the first request")
			s.conn(0).closeItself(exchange.ClosedByPeer)
			if protocol == exchange.HTTP2 {
				s.conn(0).owner.Changed()
			}
			pass(2 * sec)
			testsupport.Equal(t, s.openCount(), 2, "%d connections are open after one was lost")
			pass(100 * sec) // they expire, and are opened again
			testsupport.Equal(t, s.openCount(), 2, "%d connections are open after a while")
			testsupport.AtLeast(t, p.closedFor(exchange.ClosedIdle), 6, "%d were closed as idle in 100 s of idle_timeout 20 s")
		})
	}
}
