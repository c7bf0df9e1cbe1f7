package pool

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// checkedSSP is an SSP that sees which of its requests are health checks.
type checkedSSP struct {
	*fakeSSP
	mu     sync.Mutex
	sick   map[string]bool        // endpoints whose checks get a 500
	checks map[string][]time.Time // by endpoint
	conns  map[string]map[*fakeConn]bool
}

func newCheckedSSP(t testing.TB, n int) *checkedSSP {
	s := &checkedSSP{fakeSSP: endpointsSSP(t, n), sick: map[string]bool{}, checks: map[string][]time.Time{}, conns: map[string]map[*fakeConn]bool{}}
	s.fakeSSP.do = s.respond
	return s
}

func (s *checkedSSP) respond(c *fakeConn, ex *exchange.Exchange) error {
	if string(ex.Request.Target) != "/health" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := c.addr.Name
	s.checks[name] = append(s.checks[name], time.Now())
	if s.conns[name] == nil {
		s.conns[name] = map[*fakeConn]bool{}
	}
	s.conns[name][c] = true
	ex.Response.Status = 200
	if s.sick[name] {
		ex.Response.Status = 500
	}
	return nil
}

// setSick makes the checks of the named endpoints fail, and all other checks succeed.
func (s *checkedSSP) setSick(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.sick)
	for _, name := range names {
		s.sick[name] = true
	}
}

// checksOf returns the times of the checks of an endpoint.
func (s *checkedSSP) checksOf(name string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checks[name]
}

// withChecks adds health checks to other settings.
func withChecks(other func(*Options)) func(*Options) {
	return func(o *Options) {
		other(o)
		o.HealthCheck = HealthCheck{Path: "/health", Interval: 5 * sec, Timeout: sec, Unhealthy: 3, Healthy: 2, Scheme: "http"}
	}
}

// longest is how long n results in a row may take to arrive.
func longest(n int) time.Duration { return time.Duration(n) * 5500 * msec }

func (l *eventLog) checkChanges() (all []string) {
	for _, e := range l.all() {
		if e.Check != balancer.NoCheckChange {
			all = append(all, fmt.Sprintf("%d %s %v", e.Check, e.Endpoint, e.Err))
		}
	}
	return all
}

// No request of a client finds out that an endpoint fails or works again: its checks do.
func TestChecksTakeAnEndpointOutAndBringItBack(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s, log := newCheckedSSP(t, 2), new(eventLog)
		p := start(t, s.fakeSSP, withChecks(func(o *Options) { withWeights(1, 1)(o); o.Events = log.add }))
		p2 := start(t, newFakeSSP(t), nil) // without checks
		pass(time.Minute)
		testsupport.Between(t, len(s.checksOf("a:80")), 10, 14, "%d checks in a minute, want one in 5 s")
		s.setSick("b:80")
		pass(longest(3))
		testsupport.MustEqual(t, stateOf(p, "b:80"), "unhealthy", "b is %s after three failures")
		got := serve(t, p, 100, 10*msec, nil)
		testsupport.True(t, got["a:80"] == 100, "100 requests were shared %v", got)
		s.setSick()
		for i, want := range []string{"unhealthy", "enabled"} {
			for before := len(s.checksOf("b:80")); len(s.checksOf("b:80")) == before; {
				pass(100 * msec)
			}
			testsupport.Equal(t, stateOf(p, "b:80"), want, "b is %s after %d successes", i+1)
		}
		got = serve(t, p, 100, 10*msec, nil)
		testsupport.True(t, got["b:80"] >= 45, "100 requests were shared %v", got)
		testsupport.Equal(t, fmt.Sprint(log.checkChanges()), "[1 b:80 status 500 3 b:80 <nil>]", "events: %v")
		for _, e := range p.Snapshot().Endpoints {
			n := len(s.conns[e.Endpoint])
			testsupport.True(t, uint64(n) <= 1+e.ChecksFailed, "the checks of %s used %d connections: want one, and one after each of %d failures", e.Endpoint, n, e.ChecksFailed)
			if e.Endpoint == "b:80" && (e.ChecksFailed < 3 || e.ChecksOK < 10) {
				t.Errorf("%d checks failed and %d succeeded", e.ChecksFailed, e.ChecksOK)
			}
		}
		e := p2.Snapshot().Endpoints[0]
		testsupport.Equal(t, e.ChecksOK+e.ChecksFailed, 0, "without health_check, there were %d checks")
	})
}

// An ejected endpoint returns after one check, and no request of a client probes it.
func TestProbeOfAnEjectedEndpointIsACheck(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newCheckedSSP(t, 2)
		p := start(t, s.fakeSSP, withChecks(withWeights(1, 1)))
		for stateOf(p, "b:80") != "ejected" {
			serve(t, p, 1, 10*msec, failing("b:80"))
		}
		ejected := time.Now()
		for stateOf(p, "b:80") == "ejected" {
			testsupport.MustTrue(t, serve(t, p, 1, 10*msec, nil)["b:80"] <= 0, "an ejected endpoint got a request")
		}
		testsupport.Between(t, time.Since(ejected), 4900*msec, 5100*msec, "b was back after %v, want 5 s")

		// Now its checks fail too.
		s.setSick("b:80")
		serve(t, p, 20, 10*msec, failing("b:80"))
		got := serve(t, p, 600, 100*msec, nil)
		testsupport.True(t, got["b:80"] <= 0 && stateOf(p, "b:80") == "unhealthy", "b got %d requests in a minute, and is %s", got["b:80"], stateOf(p, "b:80"))
	})
}

// When the spare cannot serve any more, requests are sent to primaries although they are unhealthy.
func TestUnhealthyEndpointsServeIfAllAreOut(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newCheckedSSP(t, 3)
		s.setSick("a:80", "b:80")
		p := start(t, s.fakeSSP, withChecks(withPriorities(0, 0, 1)))
		pass(time.Minute)
		got := serve(t, p, 10, 10*msec, nil)
		testsupport.MustTrue(t, got["c:80"] == 10, "10 requests were shared %v", got)
		p.SetEndpointState("c:80", balancer.Disabled)
		got = serve(t, p, 100, 10*msec, nil)
		testsupport.True(t, got["a:80"] >= 45 && got["b:80"] >= 45, "100 requests were shared %v", got)
	})
}

func TestEndpointsOutOfUseAreNotChecked(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newCheckedSSP(t, 2)
		p := start(t, s.fakeSSP, withChecks(withWeights(1, 1)))
		checks := func() (a, b int) {
			before, beforeB := len(s.checksOf("a:80")), len(s.checksOf("b:80"))
			pass(time.Minute)
			return len(s.checksOf("a:80")) - before, len(s.checksOf("b:80")) - beforeB
		}
		p.SetEndpointState("b:80", balancer.Draining)
		a, b := checks()
		testsupport.True(t, a >= 10 && b == 0, "with b draining: %d and %d checks", a, b)
		testsupport.True(t, len(s.openTo("b:80")) == 0, "the connection for the checks of b stayed open")
		p.SetState(balancer.Disabled)
		a, b = checks()
		testsupport.True(t, a+b == 0, "of a disabled SSP: %d and %d checks", a, b)
		p.SetState(balancer.Enabled)
		p.SetEndpointState("b:80", balancer.Enabled)
		a, b = checks()
		testsupport.True(t, a >= 10 && b >= 10, "enabled: %d and %d checks", a, b)
		changeOptions(p, func(o *Options) { o.HealthCheck.Paused = true })
		a, b = checks()
		testsupport.True(t, a+b == 0, "while checks pause: %d and %d checks", a, b)
	})
}

// Reloads keep what checks have found, unless they turn checks off.
func TestReloadKeepsWhatChecksFound(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newCheckedSSP(t, 2)
		s.setSick("b:80")
		p := start(t, s.fakeSSP, withChecks(withWeights(1, 1)))
		pass(longest(4))
		want := func(p *Pool, state string) {
			t.Helper()
			testsupport.Equal(t, stateOf(p, "b:80"), state, "b is %s")
		}
		want(p, "unhealthy")
		changeOptions(p, func(o *Options) { o.HealthCheck.Interval, o.HealthCheck.Path = sec, "/other" })
		want(p, "unhealthy")
		successor := start(t, newCheckedSSP(t, 2).fakeSSP, withChecks(withWeights(1, 1)))
		successor.Inherit(p)
		want(successor, "unhealthy")
		unchecked := start(t, newCheckedSSP(t, 2).fakeSSP, withWeights(1, 1))
		unchecked.Inherit(p)
		want(unchecked, "enabled")
		changeOptions(p, func(o *Options) { o.HealthCheck.Path = "" })
		want(p, "enabled")
		got := serve(t, p, 100, 10*msec, nil)
		testsupport.True(t, got["b:80"] >= 45, "100 requests were shared %v", got)
	})
}

// An SSP that closes idle connections between two checks, even at the moment of a check, is healthy.
func TestCheckOnAConnectionThatCloses(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newCheckedSSP(t, 2)
		s.fakeSSP.do = func(c *fakeConn, ex *exchange.Exchange) error {
			if c.addr.Name == "b:80" && len(s.checksOf("b:80")) > 0 && s.conns["b:80"][c] {
				c.closeItself(exchange.ClosedByPeer)
				return &exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.MaybeProcessed, Stale: true}
			}
			return s.respond(c, ex)
		}
		p := start(t, s.fakeSSP, withChecks(withWeights(1, 1)))
		for range 60 {
			pass(sec)
			for _, c := range s.openTo("a:80") {
				c.closeItself(exchange.ClosedByPeer)
			}
		}
		for _, e := range p.Snapshot().Endpoints {
			testsupport.True(t, e.ChecksFailed <= 0 && e.ChecksOK >= 10, "%s: %d checks failed and %d succeeded", e.Endpoint, e.ChecksFailed, e.ChecksOK)
		}
	})
}

// A check that gets no response ends after its timeout, and names the setting.
func TestCheckWithoutAResponseTimesOut(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newCheckedSSP(t, 2)
		s.fakeSSP.do = func(c *fakeConn, ex *exchange.Exchange) error {
			if c.addr.Name != "b:80" {
				return s.respond(c, ex)
			}
			<-ex.Context.Done()
			return &exchange.Error{Outcome: exchange.Cancelled, Progress: exchange.MaybeProcessed}
		}
		p := start(t, s.fakeSSP, withChecks(withWeights(1, 1)))
		pass(longest(4))
		for _, e := range p.Snapshot().Endpoints {
			if want := "no response within 1s; see health_check.timeout"; e.Endpoint == "b:80" && (e.State != "unhealthy" || e.LastCheckError != want) {
				t.Errorf("b is %s: %q, want %q", e.State, e.LastCheckError, want)
			}
		}
		synctest.Wait()
	})
}

// Two pools that start at the same moment, like replicas, do not check in step.
func TestChecksOfReplicasAreNotInStep(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newCheckedSSP(t, 2), newCheckedSSP(t, 2)
		start(t, a.fakeSSP, withChecks(withWeights(1, 1)))
		start(t, b.fakeSSP, withChecks(withWeights(1, 1)))
		pass(10 * time.Minute)
		near := 0
		for i, at := range a.checksOf("a:80") {
			if i < len(b.checksOf("a:80")) && at.Sub(b.checksOf("a:80")[i]).Abs() < 50*msec {
				near++
			}
		}
		n := len(a.checksOf("a:80"))
		testsupport.True(t, n >= 115 && n <= 125 && near <= n/4, "%d checks in ten minutes, %d of them within 50 ms of the other pool's", n, near)
	})
}
