package pool

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// askIsolated starts an isolated request.
func askIsolated(t testing.TB, p *Pool, deadline time.Duration) *request {
	return askFor(t, p, &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(deadline), Redials: 1, Isolated: true}})
}

// An isolated request gets a connection of its own, which no other request shares. Neither
// that request nor any other waits behind the other. The connection is used again, also by other requests if they
// find no other place.
func TestIsolatedRequestsShareNoConnection(t *testing.T) {
	overHTTP2(t, func(o *Options) { o.MaxHTTP2Conns = 1 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		shared := acquireAll(t, p, 4) // on connection 0, which has ten places
		large := askIsolated(t, p, sec)
		large.wantWaits()
		shared = append(shared, acquireAll(t, p, 6)...) // not behind the isolated request
		pass(10 * msec)
		large.wantConn(1, 10*msec)
		testsupport.Equal(t, large.offered(), 1, "the connection has %d places")
		waiting := ask(t, p, sec)
		waiting.wantWaits() // connection 1 has no second place
		large.do()
		waiting.wantConn(1, 0)
		testsupport.Equal(t, inUse(p)[0], 10, "%d requests are on the shared connection")
		waiting.do()
		again := askIsolated(t, p, sec)
		again.wantConn(1, 0)
		again.do()
		testsupport.Equal(t, s.dialCount(), 2, "%d dials")
		for _, r := range shared {
			r.place.Release(r.ex)
		}
	})
}

// Isolated requests are on a quarter of max_conns at most. Further ones wait in their own queue, and the
// error names the settings.
func TestIsolatedRequestsAreAQuarterOfMaxConns(t *testing.T) {
	overHTTP2(t, func(o *Options) { o.MaxConns, o.MaxPending, o.PendingTimeout = 12, 2, 50*msec }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.locked(func() { s.do = holding(20 * msec) })
		var all []*request
		for range 3 {
			r := askIsolated(t, p, sec)
			pass(10 * msec)
			all = append(all, r)
		}
		testsupport.Equal(t, s.dialCount(), 3, "%d dials for the first isolated requests")
		first, second := askIsolated(t, p, sec), askIsolated(t, p, sec)
		askIsolated(t, p, sec).wantErr(exchange.PendingFull, 0)
		ordinary := ask(t, p, sec)
		pass(10 * msec)
		ordinary.wantConn(3, 10*msec)
		go all[0].do()
		pass(20 * msec)
		first.wantConn(0, 30*msec)
		pass(20 * msec)
		e := second.wantErr(exchange.PendingTimeout, 50*msec)
		testsupport.True(t, strings.Contains(e.Error(), "pool.max_conns (a quarter of it"), "the error does not name the setting: %v", e)
		doAll([]*request{all[1], all[2], first, ordinary})
	})
}

// A pool of a single connection serves isolated requests as soon as no other request is on the connection,
// and other requests get all their places back.
func TestIsolatedRequestsTakeTurnsOnASingleConnection(t *testing.T) {
	overHTTP2(t, func(o *Options) { o.MaxConns, o.MaxHTTP2Conns = 1, 1 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		acquire(t, p).do()
		large := askIsolated(t, p, sec)
		pass(20 * msec)
		large.wantConn(1, 10*msec)
		all := askAll(t, p, 10, sec)
		all[0].wantWaits()
		large.do()
		pass(20 * msec)
		for _, r := range all {
			r.wantConn(2, 10*msec)
			r.place.Release(r.ex)
		}
	})
}

// While all multiplexed connections that max_conns allows are busy, one of them makes room.
func TestABusyConnectionMakesRoomForIsolatedRequests(t *testing.T) {
	overHTTP2(t, func(o *Options) { o.MaxConns, o.MaxHTTP2Conns, o.PendingTimeout = 2, 2, sec }, func(t *testing.T, s *fakeSSP, p *Pool) {
		all := acquireAll(t, p, 6)
		pass(10 * msec)
		all = append(all, acquireAll(t, p, 5)...)
		large := askIsolated(t, p, sec)
		large.wantWaits()
		doAll(all)
		pass(10 * msec)
		large.wantConn(2, 10*msec)
		large.do()
	})
}

// Isolated requests whose dials fail end as others do.
func TestIsolatedRequestsWhoseDialsFail(t *testing.T) {
	inBubble(t, multiplexed, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.always(dialResult{after: msec, err: errRefused})
		r := askIsolated(t, p, sec)
		pass(3 * msec)
		r.wantErr(exchange.ConnectFailed, 2*msec)
		s.always(dialResult{after: msec, protocol: exchange.HTTP2})
		pass(sec)
		r = askIsolated(t, p, sec)
		pass(msec)
		r.wantConn(0, msec)
		r.do()
	})
}

// If the SSP negotiates HTTP/1, isolated requests use its connections as all others do.
func TestIsolatedRequestsOverHTTP1(t *testing.T) {
	inBubble(t, func(o *Options) { o.Protocol = exchange.Unknown }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.always(dialResult{after: msec})
		r := askIsolated(t, p, sec)
		pass(msec)
		r.wantConn(0, msec)
		r.do()
		acquire(t, p).do()
		testsupport.Equal(t, s.dialCount(), 1, "%d dials")
		synctest.Wait()
	})
}

// A request that must use HTTP/1 does not get the idle HTTP/2 connection of an isolated request.
func TestRequestsOverHTTP1PassOverConnectionsOfIsolatedRequests(t *testing.T) {
	inBubble(t, func(o *Options) { multiplexed(o); o.Protocol = exchange.Unknown }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.set(func(c dialCall) dialResult {
			if c.offer {
				return dialResult{after: msec, protocol: exchange.HTTP2}
			}
			return dialResult{after: msec, protocol: exchange.HTTP1}
		})
		acquire(t, p).do()
		large := askIsolated(t, p, sec)
		pass(msec)
		large.wantConn(1, msec)
		large.do()
		r := askFor(t, p, &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(sec), Redials: 1, OverHTTP1: true}})
		pass(msec)
		r.wantConn(2, msec)
		testsupport.Equal(t, r.place.Protocol(), exchange.HTTP1, "the request got %v")
		r.do()
	})
}

// A connection for an isolated request that is not needed any more when it opens is in no count afterwards.
func TestAnUnneededConnectionForAnIsolatedRequestIsNotCounted(t *testing.T) {
	overHTTP2(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		shared := acquire(t, p)
		isolated := askIsolated(t, p, sec)
		changeOptions(p, func(o *Options) { o.MaxConns = 1 })
		pass(10 * msec)
		testsupport.Equal(t, len(s.openConns()), 1, "%d connections are open")
		testsupport.Equal(t, inside(p, func(k *machine) int { return k.conns.single }), 0, "%d connections for isolated requests")
		changeOptions(p, func(o *Options) { o.MaxConns = 12 })
		pass(10 * msec)
		isolated.wantConn(2, 20*msec)
		isolated.do()
		shared.do()
	})
}
