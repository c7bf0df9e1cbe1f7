//go:build !race

package pool

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// shares makes n requests from clients that each send their next request pause after a response, and returns how
// many requests each endpoint served. Durations of responses vary, so that the clients do not stay in step.
func shares(t testing.TB, s *fakeSSP, p *Pool, clients, n int, pause time.Duration, closes bool) map[string]int {
	s.do = func(c *fakeConn, _ *exchange.Exchange) error {
		s.mu.Lock()
		took := time.Duration(3+c.done%5+c.n%3) * msec
		s.mu.Unlock()
		time.Sleep(took)
		if closes {
			c.closeItself(exchange.ClosedByPeer)
		}
		return nil
	}
	var left atomic.Int64
	left.Store(int64(n))
	var mu sync.Mutex
	served := make(map[string]int)
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				ex := &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(10 * sec), Redials: 1}}
				place, err := p.Acquire(ex)
				if err != nil {
					t.Errorf("no place: %v", err)
					return
				}
				testsupport.NoError(t, place.Do(ex))
				mu.Lock()
				served[ex.Endpoint]++
				mu.Unlock()
				time.Sleep(pause)
			}
		})
	}
	wg.Wait()
	return served
}

// wantShares checks that 300 requests were shared by weight, to within 5 % of them.
func wantShares(t testing.TB, served map[string]int, weights []int) {
	t.Helper()
	sum := 0
	for _, w := range weights {
		sum += w
	}
	for i, w := range weights {
		got, want := served[allNames[i]], 300*w/sum
		testsupport.True(t, got >= want-15 && got <= want+15, "%s served %d of 300 requests, want %d ± 15", allNames[i], got, want)
	}
}

// Requests that find no open connection are shared by weight too.
func TestSharesHoldWithoutIdleConnections(t *testing.T) {
	testsupport.Long(t)
	ways := []struct {
		name   string
		change func(*Options)
		pause  time.Duration
		closes bool // the SSP closes each connection after a response
	}{
		{name: "Connection: close", closes: true},
		{name: "Connection: close, min_idle 1", change: func(o *Options) { o.MinIdle = 1 }, closes: true},
		{name: "max_requests_per_conn 1", change: func(o *Options) { o.MaxRequests = 1 }},
		{name: "max_requests_per_conn 1, min_idle 1", change: func(o *Options) { o.MaxRequests, o.MinIdle = 1, 1 }},
		{name: "max_requests_per_conn 1, HTTP/2", change: func(o *Options) { o.MaxRequests, o.Protocol = 1, exchange.HTTP2 }},
		{name: "max_idle 0", change: func(o *Options) { o.MaxIdle = 0 }},
		{name: "less often than idle_timeout", change: func(o *Options) { o.IdleTimeout = 100 * msec }, pause: 150 * msec},
	}
	for i, way := range ways {
		for j, weights := range [][]int{{1, 5}, {1, 1, 1, 1, 1}, {5, 4, 3, 2, 1, 1}} {
			clients := []int{1, 8}[(i+j)%2]
			testsupport.RunBubble(t, fmt.Sprint(way.name, "/", weights, "/", clients), func(t *testing.T) {
				s := endpointsSSP(t, len(weights))
				p := start(t, s, func(o *Options) {
					withWeights(weights...)(o)
					if way.change != nil {
						way.change(o)
					}
				})
				protocol := p.Options().Protocol
				s.set(func(c dialCall) dialResult {
					return dialResult{after: time.Duration(1+c.n%4) * msec, protocol: protocol}
				})
				wantShares(t, shares(t, s, p, clients, 300, way.pause, way.closes), weights)
			})
		}
	}
}

// closesEach is withEndpoints with an SSP that closes each connection after a response.
func closesEach(t *testing.T, n int, change func(*Options), test func(t *testing.T, s *fakeSSP, p *Pool)) {
	withEndpoints(t, n, func(o *Options) { withWeights(1, 1, 1)(o); o.Endpoints = o.Endpoints[:n]; change(o) }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.do = func(c *fakeConn, _ *exchange.Exchange) error {
			c.closeItself(exchange.ClosedByPeer)
			return nil
		}
		test(t, s, p)
	})
}

// A request whose dial fails gets a connection to another endpoint. The endpoint gets its share back.
func TestDialInTurnThatFailsGoesElsewhere(t *testing.T) {
	closesEach(t, 3, func(*Options) {}, func(t *testing.T, s *fakeSSP, p *Pool) {
		var down atomic.Bool
		down.Store(true)
		s.set(func(c dialCall) dialResult {
			if down.Load() && c.addr.Name == "b:80" {
				return dialResult{after: msec, err: errRefused}
			}
			return dialResult{after: msec}
		})
		got := serve(t, p, 200, msec, nil) // fails if a request gets no place
		testsupport.True(t, got["a:80"] >= 90 && got["b:80"] == 0 && got["c:80"] >= 90, "while b refuses connections, 200 requests were shared %v", got)
		down.Store(false)
		pass(10 * sec)
		testsupport.AtLeast(t, serve(t, p, 300, msec, nil)["b:80"], 90, "b got %d of 300 requests after it came back")
	})
}

// Dials for waiting requests go to the endpoints of the lowest priority, and not to one that is ejected.
func TestDialsInTurnKeepPrioritiesAndEjections(t *testing.T) {
	closesEach(t, 3, func(o *Options) { o.Endpoints[2].Priority = 1 }, func(t *testing.T, _ *fakeSSP, p *Pool) {
		got := serve(t, p, 200, msec, nil)
		testsupport.True(t, got["a:80"] == 100 && got["b:80"] == 100, "200 requests were shared %v, want 100 to a and b", got)
		serve(t, p, 50, msec, failing("b:80"))
		testsupport.MustEqual(t, stateOf(p, "b:80"), balancer.Ejected, "b is %s")
		testsupport.Equal(t, serve(t, p, 200, msec, nil)["a:80"], 200, "while b is ejected, a got %d of 200 requests")
	})
}

// slow_start raises the share of a returned endpoint, also of requests that wait for dials.
func TestSlowStartBoundsDialsInTurn(t *testing.T) {
	closesEach(t, 2, func(o *Options) { o.SlowStart = 20 * sec }, func(t *testing.T, _ *fakeSSP, p *Pool) {
		p.SetEndpointState("b:80", balancer.Disabled)
		serve(t, p, 10, msec, nil)
		p.SetEndpointState("b:80", balancer.Enabled)
		first := serve(t, p, 100, msec, nil)["b:80"]
		pass(30 * sec)
		last := serve(t, p, 100, msec, nil)["b:80"]
		testsupport.True(t, first >= 5 && first <= 15 && last == 50, "b got %d of the first 100 requests, want about 9, and later %d, want 50", first, last)
	})
}

// Dials ahead of requests are spread by weight.
func TestDialsAheadAreSpreadByWeight(t *testing.T) {
	withEndpoints(t, 3, func(o *Options) { withWeights(5, 2, 1)(o); o.MinIdle = 16 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		testsupport.NoError(t, p.Warm(t.Context()))
		for i, want := range []int{10, 4, 2} {
			testsupport.Equal(t, len(s.openTo(names[i])), want, "%[2]s has %[1]d of 16 connections", names[i])
		}
	})
	withEndpoints(t, 3, withWeights(5, 2, 1), func(t *testing.T, s *fakeSSP, p *Pool) {
		useAll(askAll(t, p, 16, sec)) // a burst
		for i, want := range []int{10, 4, 2} {
			testsupport.Equal(t, len(s.openTo(names[i])), want, "%[2]s has %[1]d of 16 connections", names[i])
		}
	})
}
