//go:build !race

package pool

import (
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// busyPool is a pool with four requests for each of its places, that is always busy: none of its connections becomes
// idle. Its endpoints are a:80, b:80 and so on.
type busyPool struct {
	t        *testing.T
	s        *fakeSSP
	p        *Pool
	down     [3]atomic.Bool // whether an endpoint refuses connections
	requests []*request
	ends     []time.Time
	served   map[string]int // requests by endpoint
	counted  int            // closes that have been counted
	closing  string         // the endpoint that closes its connection after each response
	dialTime time.Duration
	mayFail  bool // requests may fail
	isolated bool // requests are isolated
}

func withBusyPool(t *testing.T, endpoints []balancer.Options, protocol exchange.Protocol, conns int, change func(*Options), test func(*busyPool)) {
	withEndpoints(t, len(endpoints), func(o *Options) {
		o.Endpoints, o.Protocol = endpoints, protocol
		o.MaxConns, o.MaxIdle, o.MaxHTTP2Conns, o.MaxStreams, o.PipelineDepth, o.MaxPending, o.PendingTimeout = conns, conns, conns, 2, 2, 200, sec
		change(o)
	}, func(t *testing.T, s *fakeSSP, p *Pool) {
		b := &busyPool{t: t, s: s, p: p, requests: make([]*request, 4*conns), ends: make([]time.Time, 4*conns), dialTime: 15 * msec}
		s.set(func(c dialCall) dialResult {
			if b.down[c.addr.Name[0]-'a'].Load() {
				return dialResult{after: msec, err: errRefused}
			}
			return dialResult{after: b.dialTime, protocol: protocol}
		})
		b.run(sec)
		test(b)
		b.end()
	})
}

// end gives all places back.
func (b *busyPool) end() {
	for _, r := range b.requests {
		time.Sleep(20 * msec)
		if r.ended() && r.err == nil {
			finish(r, false)
		}
	}
}

// run lets time pass. Each request takes 10 ms from its place on, and another one follows.
func (b *busyPool) run(d time.Duration) {
	b.served = map[string]int{}
	for began := time.Now(); time.Since(began) < d; time.Sleep(msec) {
		for i, r := range b.requests {
			switch {
			case r != nil && !r.ended():
				continue
			case r != nil && r.err == nil && b.ends[i].IsZero():
				b.ends[i] = time.Now().Add(10 * msec)
				continue
			case r != nil && r.err == nil && time.Now().Before(b.ends[i]):
				continue
			case r != nil && r.err == nil:
				if r.ex.Endpoint == b.closing {
					r.conn().closeItself(exchange.ClosedByPeer)
				}
				finish(r, false)
				b.served[r.ex.Endpoint]++
			case r != nil && !b.mayFail:
				testsupport.NoError(b.t, r.err)
			}
			b.requests[i] = askFor(b.t, b.p, &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(10 * sec), Isolated: b.isolated}})
			b.ends[i] = time.Time{}
		}
	}
}

// fail makes an endpoint refuse connections, and closes those that it has.
func (b *busyPool) fail(endpoint string) {
	b.down[endpoint[0]-'a'].Store(true)
	for _, c := range b.s.openTo(endpoint) {
		c.goAway(exchange.ClosedByPeer)
	}
}

func (b *busyPool) recover(endpoint string) { b.down[endpoint[0]-'a'].Store(false) }

func (b *busyPool) open(endpoint string) int { return len(b.s.openTo(endpoint)) }

// closes returns how many connections the pool has closed since the last call.
func (b *busyPool) closes() (n int) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	for _, c := range b.s.conns {
		if c.reason == exchange.ClosedDrain {
			n++
		}
	}
	n, b.counted = n-b.counted, n
	return n
}

func equal(n int) (all []balancer.Options) {
	for i := range n {
		all = append(all, balancer.Options{Name: string(rune('a'+i)) + ":80", Weight: 1})
	}
	return all
}

func unchanged(*Options) {}

var protocols = []exchange.Protocol{exchange.HTTP1, exchange.HTTP1Pipelined, exchange.HTTP2}

// Of two equal endpoints of a busy pool, one that works again gets half of the connections, for which as few close
// as it gets.
func TestEndpointThatWorksAgainGetsItsShareOfABusyPool(t *testing.T) {
	for _, conns := range []int{4, 10} {
		withBusyPool(t, equal(2), exchange.HTTP1, conns, unchanged, func(b *busyPool) {
			b.fail("b:80")
			b.run(2 * sec)
			testsupport.Equal(t, b.open("a:80"), conns, "b:80 is down: %d connections to a:80")
			b.closes()
			b.recover("b:80")
			b.run(10 * sec)
			testsupport.Equal(t, b.open("a:80"), conns/2, "%d connections to a:80")
			testsupport.Equal(t, b.open("b:80"), conns/2, "%d connections to b:80")
			closed := b.closes()
			testsupport.True(t, closed >= conns/2 && closed <= conns/2+3, "%d of %d connections closed", closed, conns)
			b.run(10 * sec)
			testsupport.Equal(t, b.closes(), 0, "then %d connections closed")
		})
	}
}

// Requests choose among multiplexed connections by their free places, so each endpoint needs only one.
func TestEndpointThatWorksAgainGetsAMultiplexedConnection(t *testing.T) {
	for _, protocol := range []exchange.Protocol{exchange.HTTP1Pipelined, exchange.HTTP2} {
		withBusyPool(t, equal(2), protocol, 4, unchanged, func(b *busyPool) {
			b.fail("b:80")
			b.run(2 * sec)
			b.recover("b:80")
			b.closes()
			b.run(8 * sec)
			n := b.closes()
			testsupport.True(t, n <= 2, "%v: %d connections closed", protocol, n)
			b.run(sec)
			testsupport.True(t, b.served["b:80"] > 0 && b.served["b:80"] >= b.served["a:80"]/4, "%v: %v", protocol, b.served)
		})
	}
}

func TestEndpointsThatWorkAgainTogetherBothGetConnections(t *testing.T) {
	for _, protocol := range protocols {
		withBusyPool(t, equal(3), protocol, 6, unchanged, func(b *busyPool) {
			b.fail("b:80")
			b.fail("c:80")
			b.run(3 * sec)
			b.recover("b:80")
			b.recover("c:80")
			b.closes()
			b.run(10 * sec)
			n := b.closes()
			testsupport.True(t, n <= 8, "%v: %d connections closed", protocol, n)
			least := 1
			if protocol == exchange.HTTP1 {
				least = 2
			}
			testsupport.True(t, b.open("b:80") >= least && b.open("c:80") >= least, "%v: %d, %d and %d connections", protocol, b.open("a:80"), b.open("b:80"), b.open("c:80"))
		})
	}
}

func TestSlowStartEndsInABusyPool(t *testing.T) {
	withBusyPool(t, equal(2), exchange.HTTP1, 10, func(o *Options) { o.SlowStart = 5 * sec }, func(b *busyPool) {
		b.fail("b:80")
		b.run(2 * sec)
		b.recover("b:80")
		b.run(20 * sec)
		testsupport.Equal(t, b.open("b:80"), 5, "%d connections to b:80")
	})
}

// While an endpoint is down, each dial to it needs the room of a connection that works: one for each back-off, which is
// 5 s in the end.
func TestEndpointThatIsDownCostsOneConnectionABackOff(t *testing.T) {
	for _, protocol := range protocols {
		withBusyPool(t, equal(2), protocol, 4, unchanged, func(b *busyPool) {
			b.fail("b:80")
			b.run(20 * sec)
			b.closes()
			b.run(30 * sec)
			n := b.closes()
			testsupport.True(t, n <= 7, "%v: %d connections closed in 30 s", protocol, n)
			testsupport.True(t, b.served["a:80"] > 30*330, "%v: %d requests in 30 s", protocol, b.served["a:80"])
		})
	}
}

// The room of the connection that closes is for the endpoint that has none, whatever the weights: the dials for the requests
// that wait go by turns.
func TestEndpointOfLittleWeightGetsTheRoomMadeForIt(t *testing.T) {
	uneven := equal(2)
	uneven[0].Weight = 100
	withBusyPool(t, uneven, exchange.HTTP1, 8, unchanged, func(b *busyPool) {
		for range 10 {
			b.fail("b:80")
			b.run(100 * msec)
			b.recover("b:80")
			b.closes()
			b.run(6 * sec)
			testsupport.Equal(t, b.open("b:80"), 1, "%d connections to b:80")
			n := b.closes()
			testsupport.True(t, n <= 2, "%d connections closed", n)
		}
	})
}

// A spare of a later priority keeps no connection once the primary works, and closes none of the primary's while it is
// down, though the pool finds out at each back-off whether it works if there is room.
func TestSpareCostsThePrimaryNoConnection(t *testing.T) {
	for _, protocol := range []exchange.Protocol{exchange.HTTP1, exchange.HTTP1Pipelined} {
		spare := equal(2)
		spare[1].Priority = 1
		withBusyPool(t, spare, protocol, 4, unchanged, func(b *busyPool) {
			b.fail("a:80")
			b.run(2 * sec)
			testsupport.Equal(t, b.open("b:80"), 4, "the primary is down: %d connections to the spare")
			b.recover("a:80")
			b.run(10 * sec)
			testsupport.Equal(t, b.open("a:80"), 4, "the primary works: %d connections to it")
			b.mayFail = true
			b.fail("a:80")
			b.fail("b:80")
			b.run(sec)
			b.recover("a:80")
			b.run(10 * sec)
			b.mayFail = false
			testsupport.True(t, b.p.Snapshot().Endpoints[1].Unreachable, "the spare is not known to be down")
			b.closes()
			b.run(30 * sec)
			testsupport.Equal(t, b.closes(), 0, "the spare is down: %d connections closed")
		})
	}
}

// If there are more endpoints than connections, none closes for an endpoint without one.
func TestMoreEndpointsThanConnectionsOfABusyPool(t *testing.T) {
	withBusyPool(t, equal(3), exchange.HTTP1, 2, unchanged, func(b *busyPool) {
		b.closes()
		b.run(10 * sec)
		testsupport.Equal(t, b.closes(), 0, "%d connections closed")
	})
}

// The return of a connection for isolated requests makes no room in a pool that has reached the size that it chose, since
// that size does not count such connections.
func TestConnectionsOfIsolatedRequestsMakeNoRoom(t *testing.T) {
	withEndpoints(t, 2, func(o *Options) {
		withWeights(1, 1)(o)
		o.Protocol, o.MaxConns, o.MaxIdle, o.MaxHTTP2Conns, o.MaxStreams, o.MaxPending, o.PendingTimeout = exchange.HTTP2, 40, 40, 40, 2, 100, sec
	}, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.always(dialResult{after: msec, protocol: exchange.HTTP2})
		event(p, func(p *Pool) { p.machine.resize(4, 0) })
		for _, to := range []int{0, 0, 0, 1} {
			dialTo(p, to)
		}
		pass(10 * msec)
		b := &busyPool{t: t, s: s, p: p, requests: make([]*request, 20), ends: make([]time.Time, 20), isolated: true}
		b.run(sec)
		testsupport.True(t, b.served["a:80"]+b.served["b:80"] > 500, "%v", b.served)
		testsupport.Equal(t, b.closes(), 0, "%d connections closed")
		b.end()
	})
}

// A reload that removes the endpoint for which a connection closes leaves the pool as it was.
func TestReloadRemovesAnEndpointThatIsShortOfConnections(t *testing.T) {
	withBusyPool(t, equal(2), exchange.HTTP1, 4, unchanged, func(b *busyPool) {
		b.fail("b:80")
		b.run(6 * sec)
		change(b.p, b.s, "a:80")
		b.run(sec)
		b.closes()
		b.run(5 * sec)
		testsupport.Equal(t, b.closes(), 0, "%d connections closed")
		testsupport.True(t, b.served["a:80"] > 5*330, "%d requests in 5 s", b.served["a:80"])
	})
}

// An endpoint that closes its connection after each response does not cost the other one its connections.
func TestEndpointWithoutKeepAliveClosesNoOtherConnections(t *testing.T) {
	withBusyPool(t, equal(2), exchange.HTTP1, 4, unchanged, func(b *busyPool) {
		b.closing, b.dialTime = "b:80", msec
		b.closes()
		b.run(2 * sec)
		n := b.closes()
		testsupport.True(t, n <= 2, "%d connections closed", n)
		testsupport.True(t, b.served["a:80"] > 300 && b.served["b:80"] > 300, "%v", b.served)
	})
}
