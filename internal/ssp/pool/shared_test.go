package pool

import (
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// multiplexed configures a pool of HTTP/2 connections with ten places each.
func multiplexed(o *Options) {
	o.Protocol, o.MaxStreams, o.MaxHTTP2Conns, o.MaxConns = exchange.HTTP2, 10, 3, 8
}

func newHTTP2SSP(t testing.TB) *fakeSSP {
	return newFakeSSP(t, dialResult{after: 10 * msec, protocol: exchange.HTTP2, places: 10})
}

// overHTTP2 runs test in a bubble, with a multiplexed pool whose settings change may change.
func overHTTP2(t *testing.T, change func(*Options), test func(t *testing.T, s *fakeSSP, p *Pool)) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newHTTP2SSP(t)
		test(t, s, start(t, s, func(o *Options) {
			multiplexed(o)
			if change != nil {
				change(o)
			}
		}))
	})
}

// inUse returns the places in use on each connection.
func inUse(p *Pool) map[int]int {
	n := map[int]int{}
	for _, m := range openMembers(p) {
		n[m.conn.n] = m.inUse
	}
	return n
}

func TestConnectionWithTheFewestRequestsIsUsedAndLoadSpreadsEvenly(t *testing.T) {
	overHTTP2(t, func(o *Options) { o.MinIdle = 3 }, func(t *testing.T, _ *fakeSSP, p *Pool) {
		testsupport.NoError(t, p.Warm(t.Context()))
		all := acquireAll(t, p, 21)
		for n, places := range inUse(p) {
			testsupport.Equal(t, places, 7, "connection %[2]d has %[1]d exchanges", n)
		}
		// The pool next uses the connection whose places become free.
		busy := all[0].conn()
		for _, r := range all {
			if r.conn() == busy {
				r.place.Release(r.ex)
			}
		}
		for range 3 {
			r := acquire(t, p)
			testsupport.Equal(t, r.conn().n, busy.n, "the request got connection %d, and another one is idle")
			r.place.Release(r.ex)
		}
	})
}

func TestConnectionIsOpenedWhenAllHaveHalfTheirPlacesInUse(t *testing.T) {
	for _, protocol := range []exchange.Protocol{exchange.HTTP2, exchange.HTTP1Pipelined} {
		runInBubble(t, protocol.String(), func(o *Options) {
			multiplexed(o)
			o.Protocol, o.PipelineDepth = protocol, 10
			if protocol == exchange.HTTP1Pipelined {
				o.MaxConns = 3 // max_http2_conns does not apply
			}
		}, func(t *testing.T, s *fakeSSP, p *Pool) {
			s.always(dialResult{after: 10 * msec, protocol: protocol, places: 10})
			var all []*request
			grown := map[int]int{5: 2, 10: 3} // number of dials by the number of requests
			want := 1
			for i := range 30 {
				all = append(all, acquire(t, p))
				pass(20 * msec)
				if n, ok := grown[i+1]; ok {
					want = n
				}
				testsupport.MustEqual(t, s.dialCount(), want, "%d dials with %d places in use", i+1)
			}
			over := ask(t, p, 20*msec)
			pass(30 * msec)
			over.wantErr(exchange.Deadline, 20*msec)
			doAll(all)
			testsupport.True(t, surplusOf(p) <= 0 && s.dialCount() == 3, "%d dials, want 3", s.dialCount())
		})
	}
}

func TestPlacesMayRiseAndFallBelowThoseInUse(t *testing.T) {
	overHTTP2(t, func(o *Options) { o.MaxHTTP2Conns, o.PendingTimeout = 1, 10*sec }, func(t *testing.T, s *fakeSSP, p *Pool) {
		all := acquireAll(t, p, 8)
		s.conn(0).setPlaces(5)
		wantConsistent(t, p, s)
		wantSaturation(t, p, 8, 8)
		r := ask(t, p, 20*sec)
		for i := range 4 {
			pass(msec)
			r.wantWaits() // 8, 7, 6, 5 places in use of 5
			all[i].do()
		}
		pass(0)
		r.wantConn(0, 4*msec)
		wantSaturation(t, p, 5, 5)
		none, more := ask(t, p, 20*sec), ask(t, p, 20*sec)
		s.conn(0).setPlaces(0)
		pass(0)
		none.wantWaits()
		s.conn(0).setPlaces(7)
		pass(0)
		testsupport.True(t, none.ended() && more.ended(), "requests wait, but the SSP accepts more of them")
		for _, r := range append(all[4:], r, none, more) {
			r.do()
		}
	})
}

func TestGrowthExpectsThePlacesThatTheSSPOffers(t *testing.T) {
	inBubble(t, func(o *Options) {
		o.Protocol, o.MaxStreams, o.MaxHTTP2Conns, o.MaxConns, o.MaxPending = exchange.HTTP2, 100, 4, 8, 2
	}, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.always(dialResult{after: 10 * msec, protocol: exchange.HTTP2, places: 1})
		all := askAll(t, p, 7, sec)
		pass(10 * msec)
		// The pool expected 100 streams and got one: it dials three more connections, and two
		// requests are pending.
		all[6].wantErr(exchange.PendingFull, 10*msec)
		if snap := p.Snapshot(); snap.Dialing != 3 || snap.PlacesLimit != 4 || snap.WaitingForDials != 3 || snap.Pending != 2 {
			t.Errorf("the pool is %+v, want 3 dials and 4 places, with 3 requests waiting for dials and 2 pending", snap)
		}
		pass(10 * msec)
		useAll(all[:6])
	})
}

func TestGoawayIsReplacedBeforeItIsNeeded(t *testing.T) {
	overHTTP2(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		held := acquire(t, p)
		s.conn(0).goAway(exchange.ClosedGoaway)
		pass(10 * msec)
		testsupport.MustEqual(t, s.dialCount(), 2, "%d dials, want a second one, without a request")
		r := acquire(t, p)
		testsupport.True(t, r.conn().n == 1 && r.took == 0, "got connection %d after %v, want 1 at once", r.conn().n, r.took)
		snap := p.Snapshot()
		testsupport.True(t, snap.Draining[exchange.HTTP2] == 1 && snap.Active[exchange.HTTP2] == 1 && snap.PlacesInUse == 2, "the pool is %+v", snap)
		held.do() // the outstanding exchange continues
		r.do()
		testsupport.Equal(t, p.closedFor(exchange.ClosedGoaway), 1, "%d connections closed for goaway")
	})
}

// A connection that replaced a lost one becomes idle and closes. The pool opens no other one.
func TestReplacementThatClosesIdleIsNotReplaced(t *testing.T) {
	overHTTP2(t, func(o *Options) { o.IdleTimeout = 10 * sec }, func(t *testing.T, s *fakeSSP, p *Pool) {
		acquire(t, p).do()
		s.conn(0).goAway(exchange.ClosedGoaway)
		pass(60 * sec)
		testsupport.True(t, s.dialCount() == 2 && s.openCount() == 0, "%d dials and %d open connections, want 2 and none", s.dialCount(), s.openCount())
	})
}

// A full connection with fewer requests hides no other one that has free places.
func TestPlacesBesideAFullConnectionAreUsed(t *testing.T) {
	overHTTP2(t, func(o *Options) { o.MaxHTTP2Conns, o.MaxPending = 2, 0 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		var all []*request
		for range 8 { // more than half of one connection, so the pool opens the second one
			all = append(all, acquire(t, p))
			pass(20 * msec)
		}
		testsupport.MustEqual(t, s.openCount(), 2, "%d connections are open")
		s.conn(1).setPlaces(inUse(p)[1]) // full, with fewer requests than the first one
		for len(all) < 11 {
			all = append(all, acquire(t, p))
		}
		doAll(all)
	})
}

func TestConnectionUnusedForLongIsNotReplaced(t *testing.T) {
	overHTTP2(t, func(o *Options) { o.IdleTimeout = 0 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		acquire(t, p).do()
		pass(2 * replaceWithin)
		s.conn(0).goAway(exchange.ClosedByPeer)
		pass(sec)
		testsupport.Equal(t, s.dialCount(), 1, "%d dials: there was no request for two minutes")
	})
}

// A connection fails with all its exchanges. The pool learns this only from their calls of Freed.
func TestLostConnectionIsReplacedAtOnce(t *testing.T) {
	overHTTP2(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		a, b := acquire(t, p), acquire(t, p)
		s.conn(0).closeItself(exchange.ClosedError)
		a.do()
		pass(10 * msec)
		testsupport.Equal(t, s.dialCount(), 2, "%d dials")
		b.do()
		testsupport.Equal(t, acquire(t, p).took, 0, "the next request waited %v")
	})
}

func TestMaxRequestsHoldsForABurstOnANewConnection(t *testing.T) {
	overHTTP2(t, func(o *Options) { o.MaxRequests = 4 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		all := askAll(t, p, 10, sec)
		pass(40 * msec)
		doAll(all)
		synctest.Wait()
		for _, c := range s.conns {
			testsupport.True(t, c.done <= 4, "connection %d carried %d requests, want 4 at most", c.n, c.done)
		}
		testsupport.Equal(t, p.closedFor(exchange.ClosedMaxRequests), 2, "%d connections closed for max_requests")
	})
}

// Before, the connection that had refused a request had the fewest requests, so it got the request
// again.
func TestAConnectionThatRefusedARequestIsAvoidedForAMoment(t *testing.T) {
	overHTTP2(t, func(o *Options) { o.MinIdle = 2 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		testsupport.NoError(t, p.Warm(t.Context()))
		s.do = func(*fakeConn, *exchange.Exchange) error { return errFakeRefused }
		first := acquire(t, p)
		refused := first.conn()
		_ = first.place.Do(first.ex)
		s.do = nil
		for range 5 {
			r := acquire(t, p)
			testsupport.True(t, r.conn() != refused, "the request got the connection that had just refused one")
			r.do()
		}
		// It is used if no other has a place.
		all := acquireAll(t, p, 15)
		testsupport.Equal(t, inUse(p)[refused.n], 5, "%d requests on the connection, want the 5 that fit on no other")
		doAll(all)
		time.Sleep(avoidRefusing)
		r := acquire(t, p)
		testsupport.Equal(t, r.conn(), refused, "the connection is still avoided: %v")
	})
}

// An overloaded SSP refuses requests on each of its connections. Before, one of them then got all
// requests until it was full.
func TestConnectionsThatAllRefusedRequestsShareTheNextOnes(t *testing.T) {
	overHTTP2(t, func(o *Options) { o.MinIdle = 2 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		testsupport.NoError(t, p.Warm(t.Context()))
		s.do = func(*fakeConn, *exchange.Exchange) error { return errFakeRefused }
		for range 2 {
			r := acquire(t, p)
			_ = r.place.Do(r.ex)
		}
		s.do = nil
		all := acquireAll(t, p, 6)
		for n, requests := range inUse(p) {
			testsupport.Equal(t, requests, 3, "%d of 6 requests on connection %v", n)
		}
		doAll(all)
	})
}

// An SSP that closes each connection after so many requests made a request meet one close after the
// other, until retry.max was used up.
func TestARequestThatWasNotProcessedGoesToTheConnectionThatHasCarriedTheFewest(t *testing.T) {
	old, fresh, full := &member{inUse: 0, places: 10, requests: 900}, &member{inUse: 5, places: 10, requests: 50}, &member{inUse: 10, places: 10, requests: 10}
	list := []*member{old, full, fresh}
	got := leastInUse(list, wish{}, time.Now())
	testsupport.True(t, got == old, "a new request goes to the connection of %d requests", got.requests)
	got = leastInUse(list, wish{resent: true}, time.Now())
	testsupport.True(t, got == fresh, "the request goes to the connection of %d requests", got.requests)
}
