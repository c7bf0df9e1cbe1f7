package pool

import (
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

func TestIdleConnectionsAreClosedAfterIdleTimeout(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		p := start(t, s, func(o *Options) { o.IdleTimeout = 10 * sec })
		fill(t, p, 3)
		pass(9 * sec)
		acquire(t, p).do() // reuses one connection
		pass(2 * sec)
		if n := s.openCount(); n != 1 {
			t.Errorf("%d connections are open, want only the one that was used", n)
		}
		pass(10 * sec)
		if n := s.openCount(); n != 0 {
			t.Errorf("%d connections are open, want none", n)
		}
		if n := p.closedFor(upstream.ClosedIdle); n != 3 {
			t.Errorf("%d connections closed as idle, want 3", n)
		}
	})
}

func TestExpiredConnectionIsNotUsedBeforeTheJanitorRuns(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"idle_timeout": func(o *Options) { o.IdleTimeout = 200 * msec },
		"max_age":      func(o *Options) { o.MaxAge = 200 * msec },
	} {
		t.Run(name, func(t *testing.T) {
			testsupport.Bubble(t, func(t *testing.T) {
				s := newFakeSSP(t)
				p := start(t, s, change)
				acquire(t, p).do()
				pass(300 * msec) // the janitor runs at 1 s
				if n := s.openCount(); n != 1 {
					t.Fatalf("%d connections are open, want 1: the test must run before the janitor", n)
				}
				r := acquire(t, p)
				if r.conn().n != 1 {
					t.Error("the request got the expired connection")
				}
				r.do()
			})
		})
	}
}

func TestOldConnectionIsNotGivenToWaiters(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		p := start(t, s, func(o *Options) { o.MaxConns, o.MaxAge = 1, sec })
		held := acquire(t, p)
		pass(1200 * msec)
		r := ask(t, p, sec)
		held.do()
		pass(20 * msec)
		r.wantConn(1, 10*msec)
		r.do()
		if n := p.closedFor(upstream.ClosedMaxAge); n != 1 {
			t.Errorf("%d connections closed for max_age, want 1", n)
		}
	})
}

func TestMaxAgeVariesByATenth(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		p := start(t, s, func(o *Options) {
			o.MaxConns, o.MaxIdle, o.MaxDials, o.MaxAge, o.IdleTimeout = 200, 200, 200, 100*sec, 0
		})
		fill(t, p, 200)
		pass(89 * sec)
		if n := s.openCount(); n != 200 {
			t.Errorf("%d connections are open at 89 s, want 200", n)
		}
		pass(11 * sec)
		if n := s.openCount(); n < 60 || n > 140 {
			t.Errorf("%d of 200 connections are open at 100 s, want about half", n)
		}
		pass(11 * sec)
		if n := s.openCount(); n != 0 {
			t.Errorf("%d connections are open at 111 s, want none", n)
		}
		if n := p.closedFor(upstream.ClosedMaxAge); n != 200 {
			t.Errorf("%d connections closed for max_age, want 200", n)
		}
	})
}

func TestMaxAgeSetToZeroAppliesToOpenConnections(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		p := start(t, s, func(o *Options) { o.MaxAge, o.IdleTimeout = sec, 0 })
		fill(t, p, 1)
		o := p.Options()
		o.MaxAge = 0
		p.SetOptions(o)
		pass(10 * sec)
		if r := acquire(t, p); r.conn().n != 0 {
			t.Error("max_age of the settings before closed the connection")
		} else {
			r.do()
		}
	})
}

func TestConnectionCarriesAtMostMaxRequests(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		p := start(t, s, func(o *Options) { o.MaxRequests = 3 })
		for range 10 {
			acquire(t, p).do()
		}
		synctest.Wait()
		var carried []int
		for _, c := range s.conns {
			carried = append(carried, c.done)
		}
		if len(carried) != 4 || carried[0] != 3 || carried[1] != 3 || carried[2] != 3 || carried[3] != 1 {
			t.Errorf("connections carried %v requests, want 3, 3, 3, 1", carried)
		}
		if n := p.closedFor(upstream.ClosedMaxRequests); n != 3 {
			t.Errorf("%d connections closed for max_requests, want 3", n)
		}
		if n := p.stats.requestsPerConn.Sum(); n != 9 {
			t.Errorf("closed connections carried %v requests, want 9", n)
		}
	})
}

func TestOldConnectionIsReplacedBeforeItDrains(t *testing.T) {
	for name, cap := range map[string]int{"one": 1, "several": 3} {
		t.Run(name, func(t *testing.T) {
			testsupport.Bubble(t, func(t *testing.T) {
				s := newHTTP2SSP(t)
				p := start(t, s, func(o *Options) { multiplexed(o); o.MaxHTTP2Conns, o.MaxAge = cap, 10*sec })
				var last *request
				began := time.Now()
				for time.Since(began) < 60*sec {
					next := acquire(t, p) // at every moment one request is under way
					if next.took != 0 && last != nil {
						t.Fatalf("a request waited %v for a connection, %v after the start", next.took, time.Since(began))
					}
					if last != nil {
						last.do()
					}
					last = next
					pass(100 * msec)
				}
				last.do()
				pass(2 * sec)
				if n := s.dialCount(); n < 5 || n > 8 {
					t.Errorf("%d connections in 60 s of max_age 10 s, want 5 to 8", n)
				}
				for _, c := range s.conns[:len(s.conns)-1] {
					if c.CloseReason() != upstream.ClosedMaxAge {
						t.Errorf("connection %d was closed for %q", c.n, c.CloseReason())
					}
				}
			})
		})
	}
}

func TestOldConnectionDrainsOnceAnotherIsOpen(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newHTTP2SSP(t)
		p := start(t, s, func(o *Options) { multiplexed(o); o.MaxHTTP2Conns, o.MaxAge = 1, 10*sec })
		held := acquire(t, p)
		for p.Snapshot().Idle[upstream.HTTP2] == 0 {
			pass(msec)
		}
		if snap := p.Snapshot(); snap.Draining[upstream.HTTP2] != 1 {
			t.Errorf("%d connections drain, want the old one", snap.Draining[upstream.HTTP2])
		}
		held.do()
	})
}

func TestOldConnectionDrainsEvenIfNoOtherCanBeOpened(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newHTTP2SSP(t)
		p := start(t, s, func(o *Options) { multiplexed(o); o.MaxAge = 10 * sec })
		last := acquire(t, p)
		s.refuse(msec)
		began := time.Now()
		for time.Since(began) < 3*replaceWithin {
			r := ask(t, p, sec)
			pass(100 * msec)
			last.do()
			if r.err != nil {
				break
			}
			last = r
		}
		if age := time.Since(began); age < replaceWithin || age > replaceWithin+15*sec {
			t.Errorf("the old connection was drained after %v, want max_age and a minute", age)
		}
		synctest.Wait()
		if got := s.conn(0).CloseReason(); got != upstream.ClosedMaxAge {
			t.Errorf("it was closed for %q", got)
		}
	})
}
