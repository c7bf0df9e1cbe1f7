package pool

import (
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

func TestIdleConnectionsAreClosedAfterIdleTimeout(t *testing.T) {
	inBubble(t, func(o *Options) { o.IdleTimeout = 10 * sec }, func(t *testing.T, s *fakeSSP, p *Pool) {
		fill(t, p, 3)
		pass(9 * sec)
		acquire(t, p).do() // reuses one connection
		pass(2 * sec)
		testsupport.Equal(t, s.openCount(), 1, "%d connections are open, want only the one that was used")
		pass(10 * sec)
		testsupport.Equal(t, s.openCount(), 0, "%d connections are open")
		testsupport.Equal(t, p.closedFor(exchange.ClosedIdle), 3, "%d connections closed as idle")
	})
}

func TestExpiredConnectionIsNotUsedBeforeTheJanitorRuns(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"idle_timeout": func(o *Options) { o.IdleTimeout = 200 * msec },
		"max_age":      func(o *Options) { o.MaxAge = 200 * msec },
	} {
		runInBubble(t, name, change, func(t *testing.T, s *fakeSSP, p *Pool) {
			acquire(t, p).do()
			pass(300 * msec) // the janitor runs at 1 s
			testsupport.MustEqual(t, s.openCount(), 1, "%d connections are open: the test must run before the janitor")
			r := acquire(t, p)
			testsupport.Equal(t, r.conn().n, 1, "the request got the expired connection: %v")
		})
	}
}

func TestOldConnectionIsNotGivenToWaiters(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxAge = 1, sec }, func(t *testing.T, s *fakeSSP, p *Pool) {
		held := acquire(t, p)
		pass(1200 * msec)
		r := ask(t, p, sec)
		held.do()
		pass(20 * msec)
		r.wantConn(1, 10*msec)
		r.do()
		testsupport.Equal(t, p.closedFor(exchange.ClosedMaxAge), 1, "%d connections closed for max_age")
	})
}

func TestMaxAgeVariesByATenth(t *testing.T) {
	inBubble(t, func(o *Options) {
		o.MaxConns, o.MaxIdle, o.MaxDials, o.MaxAge, o.IdleTimeout = 200, 200, 200, 100*sec, 0
	}, func(t *testing.T, s *fakeSSP, p *Pool) {
		fill(t, p, 200)
		pass(89 * sec)
		testsupport.Equal(t, s.openCount(), 200, "%d connections are open at 89 s")
		pass(11 * sec)
		testsupport.Between(t, s.openCount(), 60, 140, "%d of 200 connections are open at 100 s, want about half")
		pass(11 * sec)
		testsupport.Equal(t, s.openCount(), 0, "%d connections are open at 111 s")
		testsupport.Equal(t, p.closedFor(exchange.ClosedMaxAge), 200, "%d connections closed for max_age")
	})
}

func TestMaxAgeSetToZeroAppliesToOpenConnections(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxAge, o.IdleTimeout = sec, 0 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		fill(t, p, 1)
		changeOptions(p, func(o *Options) { o.MaxAge = 0 })
		pass(10 * sec)
		testsupport.Equal(t, acquire(t, p).conn().n, 0, "max_age of the settings before closed the connection: got connection %d")
	})
}

func TestConnectionCarriesAtMostMaxRequests(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxRequests = 3 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		for range 10 {
			acquire(t, p).do()
		}
		synctest.Wait()
		var carried []int
		for _, c := range s.conns {
			carried = append(carried, c.done)
		}
		testsupport.True(t, len(carried) == 4 && carried[0] == 3 && carried[1] == 3 && carried[2] == 3 && carried[3] == 1, "connections carried %v requests, want 3, 3, 3, 1", carried)
		testsupport.Equal(t, p.closedFor(exchange.ClosedMaxRequests), 3, "%d connections closed for max_requests")
		_, requests := reported(p, "pool_requests_per_connection")
		testsupport.Equal(t, requests, 9, "closed connections carried %v requests")
	})
}

func TestOldConnectionIsReplacedBeforeItDrains(t *testing.T) {
	for name, cap := range map[string]int{"one": 1, "several": 3} {
		testsupport.RunBubble(t, name, func(t *testing.T) {
			s := newHTTP2SSP(t)
			p := start(t, s, func(o *Options) { multiplexed(o); o.MaxHTTP2Conns, o.MaxAge = cap, 10*sec })
			var last *request
			began := time.Now()
			for time.Since(began) < 60*sec {
				next := acquire(t, p) // at every moment one request is under way
				testsupport.MustTrue(t, next.took == 0 || last == nil, "a request waited %v for a connection, %v after the start", next.took, time.Since(began))
				if last != nil {
					last.do()
				}
				last = next
				pass(100 * msec)
			}
			last.do()
			pass(2 * sec)
			testsupport.Between(t, s.dialCount(), 5, 8, "%d connections in 60 s of max_age 10 s, want 5 to 8")
			for _, c := range s.conns[:len(s.conns)-1] {
				testsupport.Equal(t, c.CloseReason(), exchange.ClosedMaxAge, "connection %[2]d was closed for %[1]q", c.n)
			}
		})
	}
}

func TestOldConnectionDrainsOnceAnotherIsOpen(t *testing.T) {
	overHTTP2(t, func(o *Options) { o.MaxHTTP2Conns, o.MaxAge = 1, 10*sec }, func(t *testing.T, s *fakeSSP, p *Pool) {
		acquire(t, p)
		for p.Snapshot().Idle[exchange.HTTP2] == 0 {
			pass(100 * msec)
		}
		snap := p.Snapshot()
		testsupport.True(t, snap.Draining[exchange.HTTP2] == 1, "%d connections drain, want the old one", snap.Draining[exchange.HTTP2])
	})
}

func TestOldConnectionDrainsEvenIfNoOtherCanBeOpened(t *testing.T) {
	overHTTP2(t, func(o *Options) { o.MaxAge = 10 * sec }, func(t *testing.T, s *fakeSSP, p *Pool) {
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
		age := time.Since(began)
		testsupport.True(t, age >= replaceWithin && age <= replaceWithin+15*sec, "the old connection was drained after %v, want max_age and a minute", age)
		synctest.Wait()
		testsupport.Equal(t, s.conn(0).CloseReason(), exchange.ClosedMaxAge, "it was closed for %q")
	})
}

// A connection is idle for at most as long as its SSP has announced, also if the janitor has not run.
func TestConnectionIsIdleForAtMostTheAnnouncedTime(t *testing.T) {
	for name, protocol := range map[string]exchange.Protocol{"exclusive": exchange.HTTP1, "pipelined": exchange.HTTP1Pipelined} {
		runInBubble(t, name, func(o *Options) { o.IdleTimeout, o.Protocol = 10*sec, protocol }, func(t *testing.T, s *fakeSSP, p *Pool) {
			s.always(dialResult{after: 10 * msec, protocol: protocol})
			s.locked(func() { s.idleLimit = 500 * msec })
			acquire(t, p).do()
			pass(400 * msec)
			r := acquire(t, p)
			testsupport.Equal(t, r.conn().n, 0, "within the announced time the request got connection %d")
			r.do()
			pass(520 * msec)
			testsupport.MustEqual(t, s.openCount(), 1, "%d connections are open: the test must run before the janitor")
			r = acquire(t, p)
			testsupport.Equal(t, r.conn().n, 1, "after the announced time the request got connection %d")
			testsupport.Equal(t, p.closedFor(exchange.ClosedIdle), 1, "%d connections closed as idle")
			r.do()
			pass(2 * sec)
			testsupport.Equal(t, s.openCount(), 0, "%d connections are open")
			testsupport.Equal(t, p.closedFor(exchange.ClosedIdle), 2, "%d connections closed as idle")
		})
	}
}

func TestConnectionWithoutAnyAnnouncedTimeIsNotReused(t *testing.T) {
	for name, protocol := range map[string]exchange.Protocol{"exclusive": exchange.HTTP1, "pipelined": exchange.HTTP1Pipelined} {
		runInBubble(t, name, func(o *Options) { o.MaxConns, o.Protocol = 1, protocol }, func(t *testing.T, s *fakeSSP, p *Pool) {
			s.always(dialResult{after: 10 * msec, protocol: protocol, places: 1})
			s.locked(func() { s.idleLimit = -500 * msec })
			held := acquire(t, p)
			waits := ask(t, p, sec)
			held.do()
			pass(20 * msec)
			waits.wantConn(1, 10*msec)
			waits.do()
			r := acquire(t, p)
			testsupport.Equal(t, r.conn().n, 2, "the next request got connection %d")
			testsupport.Equal(t, p.closedFor(exchange.ClosedIdle), 2, "%d connections closed as idle")
		})
	}
}

func TestAnnouncedTimeRaisesNoLimit(t *testing.T) {
	inBubble(t, func(o *Options) { o.IdleTimeout = 2 * sec }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.locked(func() { s.idleLimit = 60 * sec })
		acquire(t, p).do()
		pass(4 * sec)
		testsupport.Equal(t, s.openCount(), 0, "%d connections are open")
	})
}
