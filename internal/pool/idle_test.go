package pool

import (
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

// fill opens n connections and leaves them idle.
func fill(t testing.TB, p *Pool, n int) {
	t.Helper()
	var all []*request
	for range n {
		all = append(all, ask(t, p, sec))
	}
	pass(100 * msec)
	for _, r := range all {
		if !r.ended() || r.err != nil {
			t.Fatalf("a request: ended %v, %v", r.ended(), r.err)
		}
		r.do()
	}
	synctest.Wait()
}

func (p *Pool) closedFor(r upstream.CloseReason) int { return int(p.stats.closedBy[r].Load()) }

func TestAtMostMaxIdleConnectionsAreKept(t *testing.T) {
	for _, maxIdle := range []int{0, 2} {
		testsupport.Bubble(t, func(t *testing.T) {
			s := newFakeSSP(t)
			p := start(t, s, func(o *Options) { o.MaxIdle = maxIdle })
			fill(t, p, 4)
			if n := s.openCount(); n != maxIdle {
				t.Errorf("%d connections are open, want max_idle, %d", n, maxIdle)
			}
			fill(t, p, 4)
			if n := s.openCount(); n != maxIdle {
				t.Errorf("%d connections are open, want max_idle, %d", n, maxIdle)
			}
		})
	}
}

func TestJanitorDropsIdleConnectionsClosedByTheSSP(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		p := start(t, s, func(o *Options) { o.MaxConns, o.MaxIdle = 50, 50 })
		fill(t, p, 50)
		for n, c := range s.conns {
			if n%3 != 0 {
				c.closeItself(upstream.ClosedByPeer)
			}
		}
		pass(2 * sec)
		snap := p.Snapshot()
		if snap.Idle[upstream.HTTP1] != 17 {
			t.Errorf("%d connections are idle, want the 17 that are not closed", snap.Idle[upstream.HTTP1])
		}
		if n := p.closedFor(upstream.ClosedByPeer); n != 33 {
			t.Errorf("%d connections closed by the SSP, want 33", n)
		}
		wantConsistent(t, p, s)
		for range 17 {
			if r := acquire(t, p); r.took != 0 {
				t.Errorf("a request waited %v, but connections are idle", r.took)
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.conns.endpoints.all[0].idle.list) != 0 || p.conns.inUse != 17 {
			t.Errorf("%d idle, %d in use, want 0 and 17", len(p.conns.endpoints.all[0].idle.list), p.conns.inUse)
		}
		for m := range p.conns.members { // release all
			p.releaseLocked(m, unused)
		}
	})
}

func TestJanitorKeepsTheOrderOfUse(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		p := start(t, s, func(o *Options) { o.MaxConns, o.MaxIdle = 30, 30 })
		fill(t, p, 30)
		order := func() (n []int) {
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, m := range p.conns.endpoints.all[0].idle.list {
				n = append(n, m.conn.(*fakeConn).n)
			}
			return n
		}
		before := order()
		pass(5 * sec)
		after := order()
		if len(after) != 30 {
			t.Fatalf("%d connections are idle, want 30", len(after))
		}
		for i := range before {
			if before[i] != after[i] {
				t.Fatalf("the order was %v and is %v", before, after)
			}
		}
		if checks := s.conn(0).checks; checks < 3 {
			t.Errorf("the janitor checked %d times in 5 s, want at least 3", checks)
		}
	})
}

// slowIdle is a connection with a slow check, so that a request arrives during the check.
type slowIdle struct{ *fakeConn }

func (c slowIdle) Idle() bool {
	time.Sleep(5 * msec)
	return c.fakeConn.Idle()
}

func TestRequestWaitsForAConnectionThatTheJanitorChecks(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		p := start(t, s, func(o *Options) { o.MaxConns, o.MaxPending = 1, 0 })
		fill(t, p, 1)
		var r *request
		p.duringCheck(func() { r = ask(t, p, sec) })
		if r.err != nil || !r.ended() {
			t.Fatalf("the request: ended %v, %v", r.ended(), r.err)
		}
		if n := s.dialCount(); n != 1 {
			t.Errorf("%d dials, want 1", n)
		}
		r.place.Release(r.ex)
	})
}

// A lowered max_idle also closes connections that the janitor checks.
func TestMaxIdleHoldsForCheckedConnections(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		p := start(t, s, nil)
		fill(t, p, 3)
		p.duringCheck(func() {
			o := p.Options()
			o.MaxIdle = 1
			p.SetOptions(o)
		})
		if n := s.openCount(); n != 1 {
			t.Errorf("%d connections are open, want 1", n)
		}
	})
}

// duringCheck calls change while the janitor checks idle connections, and returns after the check.
func (p *Pool) duringCheck(change func()) {
	p.mu.Lock()
	m := p.conns.endpoints.all[0].idle.list[0]
	m.conn = slowIdle{m.conn.(*fakeConn)}
	p.mu.Unlock()
	for p.checkingNow() == 0 {
		pass(msec)
	}
	change()
	pass(10 * msec)
}

func (p *Pool) checkingNow() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns.checking
}

func TestMinIdleConnectionsAreKeptOpen(t *testing.T) {
	for _, protocol := range []upstream.Protocol{upstream.HTTP1, upstream.HTTP2} {
		t.Run(protocol.String(), func(t *testing.T) {
			testsupport.Bubble(t, func(t *testing.T) {
				s := newFakeSSP(t)
				s.set(func(dialCall) dialResult { return dialResult{after: 10 * msec, protocol: protocol} })
				p := start(t, s, func(o *Options) { o.Protocol, o.MinIdle, o.IdleTimeout = upstream.Unknown, 2, 20*sec })
				pass(5 * sec)
				if n := s.openCount(); n != 2 {
					t.Fatalf("%d connections are open before the first request, want 2", n)
				}
				s.conn(0).closeItself(upstream.ClosedByPeer)
				if protocol == upstream.HTTP2 {
					s.conn(0).owner.Changed()
				}
				pass(2 * sec)
				if n := s.openCount(); n != 2 {
					t.Errorf("%d connections are open after one was lost, want 2", n)
				}
				pass(100 * sec) // they expire, and are opened again
				if n := s.openCount(); n != 2 {
					t.Errorf("%d connections are open after a while, want 2", n)
				}
				if n := p.closedFor(upstream.ClosedIdle); n < 6 {
					t.Errorf("%d were closed as idle in 100 s of idle_timeout 20 s", n)
				}
			})
		})
	}
}
