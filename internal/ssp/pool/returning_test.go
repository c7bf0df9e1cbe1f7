package pool

import (
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// startWithBEjected starts a pool of two endpoints, and makes requests until b is ejected.
func startWithBEjected(t *testing.T) (*fakeSSP, *Pool) {
	t.Helper()
	s := endpointsSSP(t, 2)
	p := start(t, s, withWeights(1, 1))
	serve(t, p, 50, msec, failing("b:80"))
	testsupport.MustEqual(t, stateOf(p, "b:80"), "ejected", "b is %s")
	return s, p
}

// Only the end of the probe decides whether an ejected endpoint returns. While the pool ignores
// ejection, the endpoint's connections carry other requests too.
func TestOtherRequestsDoNotDecideForTheProbe(t *testing.T) {
	withEndpoints(t, 2, func(o *Options) { withWeights(1, 1)(o); o.Protocol = exchange.HTTP2 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.always(dialResult{after: msec, protocol: exchange.HTTP2})
		serve(t, p, 50, msec, failing("b:80"))
		p.SetEndpointState("a:80", balancer.Draining) // b is the only endpoint left, so it gets requests
		before := acquire(t, p)
		pass(6 * sec)
		probe := acquire(t, p)
		testsupport.MustEqual(t, before.conn(), probe.conn(), "the probe has its own connection: %v")
		finish(before, true)
		testsupport.Equal(t, before.conn().CloseReason(), exchange.NotClosed, "another request's failure closed the connection of the probe: %v")
		testsupport.MustEqual(t, stateOf(p, "b:80"), "ejected", "b is %s before the probe has ended")
		finish(probe, false)
		testsupport.Equal(t, stateOf(p, "b:80"), "enabled", "b is %s after a probe that succeeded")
	})
}

// While the pool ignores ejection, a failed probe closes no connection: no other endpoint serves.
func TestFailedProbeOfWhatIsLeftClosesNothing(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s, p := startWithBEjected(t)
		p.SetEndpointState("a:80", balancer.Disabled)
		dials := 0
		for i := range 30 { // several times as long as an ejection
			serve(t, p, 10, 100*msec, failing("b:80"))
			if i == 0 {
				dials = s.dialCount()
			}
		}
		got := s.dialCount()
		testsupport.True(t, got == dials, "%d more dials, although no connection failed", got-dials)
		testsupport.Equal(t, stateOf(p, "b:80"), "ejected", "b is %s, although all its probes failed")
	})
}

// An endpoint that refused connections also returns by slow_start.
func TestSlowStartAfterRefusals(t *testing.T) {
	withEndpoints(t, 2, func(o *Options) {
		withWeights(1, 1)(o)
		o.Ejection.Enabled = false
		o.SlowStart = 20 * sec
	}, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.refuseAt("b:80")
		got := serve(t, p, 300, 10*msec, nil)
		testsupport.MustTrue(t, got["b:80"] == 0 && p.Snapshot().Endpoints[1].Unreachable, "b got %d requests while it refuses connections", got["b:80"])
		s.set(nil)
		for p.Snapshot().Endpoints[1].Unreachable {
			serve(t, p, 1, 10*msec, nil)
		}
		got = serve(t, p, 100, 10*msec, nil)
		testsupport.True(t, got["b:80"] != 0 && got["b:80"] <= 15, "b got %d of the first 100 requests after it came back, want about a tenth", got["b:80"])
		serve(t, p, 210, 100*msec, nil)
		testsupport.Equal(t, serve(t, p, 100, 10*msec, nil)["b:80"], 50, "b got %d of 100 requests after slow_start")
	})
}

// A retry and a hedge go to another endpoint than the first attempt. The shares of the other
// requests stay exact.
func TestSecondAttemptsGoToAnotherEndpoint(t *testing.T) {
	for _, protocol := range []exchange.Protocol{exchange.HTTP1, exchange.HTTP2} {
		withEndpoints(t, 2, func(o *Options) { withWeights(3, 1)(o); o.Protocol = protocol }, func(t *testing.T, s *fakeSSP, p *Pool) {
			s.always(dialResult{after: msec, protocol: protocol})
			serve(t, p, 40, msec, nil)
			shares := map[string]int{}
			for range 40 {
				shares[serveOne(t, p, "")]++
				for _, c := range []struct{ avoid, want string }{{"a:80", "b:80"}, {"b:80", "a:80"}} {
					testsupport.MustEqual(t, serveOne(t, p, c.avoid), c.want, "%[2]v: a request that avoids %[3]s went to %[1]s", protocol, c.avoid)
				}
			}
			testsupport.True(t, shares["a:80"] == 30, "%v: the other requests were shared %v, want 30 to 10", protocol, shares)
			p.SetEndpointState("b:80", balancer.Disabled)
			testsupport.Equal(t, serveOne(t, p, "a:80"), "a:80", "%[2]v: a request that avoids the only endpoint left went to %[1]q", protocol)
		})
	}
}

// serveOne acquires a place for a request that avoids an endpoint. It returns the endpoint of the
// place.
func serveOne(t *testing.T, p *Pool, avoid string) string {
	ex := &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(sec), Avoid: avoid}}
	place, err := p.Acquire(ex)
	testsupport.NoError(t, err)
	place.Release(ex)
	return ex.Endpoint
}

// A second attempt that waits in the queue prefers another endpoint too: places at the endpoint that
// it avoids go to the requests behind it.
func TestSecondAttemptsThatWaitPreferAnotherEndpoint(t *testing.T) {
	for _, protocol := range []exchange.Protocol{exchange.HTTP1, exchange.HTTP2} {
		testsupport.Bubble(t, func(t *testing.T) {
			p, at := fullPool(t, protocol)
			second, behind := askAvoiding(t, p, "a:80"), askAvoiding(t, p, "")
			at["a:80"].do()
			second.wantWaits()
			behind.wantEndpoint("a:80")
			at["b:80"].do()
			second.wantEndpoint("b:80")
		})
	}
}

// A request that avoids an endpoint is not starved. It takes a place there if no other request can
// use the place, or if no other endpoint is active. It also takes one after maxYields places have
// gone to other requests.
func TestRequestsThatAvoidAnEndpointAreNotStarved(t *testing.T) {
	for _, protocol := range []exchange.Protocol{exchange.HTTP1, exchange.HTTP2} {
		testsupport.Bubble(t, func(t *testing.T) {
			p, at := fullPool(t, protocol)
			alone := askAvoiding(t, p, "a:80")
			at["a:80"].do()
			alone.wantEndpoint("a:80")

			queue := []*request{askAvoiding(t, p, "a:80")}
			for range maxYields + 1 {
				queue = append(queue, askAvoiding(t, p, ""))
			}
			alone.do()
			for _, served := range queue[1 : maxYields+1] {
				queue[0].wantWaits()
				served.wantEndpoint("a:80")
				served.do()
			}
			queue[0].wantEndpoint("a:80")
			queue[maxYields+1].wantWaits()
			queue[0].do()
			synctest.Wait()

			last := askAvoiding(t, p, "a:80")
			behind := askAvoiding(t, p, "")
			p.SetEndpointState("b:80", balancer.Draining)
			queue[maxYields+1].do()
			last.wantEndpoint("a:80")
			behind.wantWaits()
		})
	}
}

// fullPool returns a pool with one place at each of the endpoints a and b, and the requests that
// have these places.
func fullPool(t *testing.T, protocol exchange.Protocol) (*Pool, map[string]*request) {
	s := endpointsSSP(t, 2)
	s.always(dialResult{after: msec, protocol: protocol, places: 1})
	p := start(t, s, func(o *Options) {
		withWeights(1, 1)(o)
		o.Protocol, o.MaxConns, o.MaxHTTP2Conns, o.PendingTimeout = protocol, 2, 2, sec
	})
	at := map[string]*request{}
	for _, r := range []*request{askAvoiding(t, p, ""), askAvoiding(t, p, "")} {
		pass(10 * msec)
		at[r.ex.Endpoint] = r
	}
	testsupport.MustTrue(t, len(at) == 2, "the requests have places at %v", at)
	return p, at
}

// askAvoiding starts a request that avoids an endpoint, and waits until it has a place or waits.
func askAvoiding(t testing.TB, p *Pool, name string) *request {
	return askFor(t, p, &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(sec), Avoid: name}})
}

// wantEndpoint checks that the request got a place at an endpoint.
func (r *request) wantEndpoint(name string) {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	testsupport.MustTrue(r.t, r.over && r.err == nil && r.ex.Endpoint == name, "over %v, %v, at %q; want a place at %s", r.over, r.err, r.ex.Endpoint, name)
}
