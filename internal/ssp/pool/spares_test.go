package pool

import (
	"slices"
	"testing"
	"time"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// withPriorities configures endpoints a, b, c, … with these priorities.
func withPriorities(priorities ...int) func(*Options) {
	return func(o *Options) {
		withWeights(make([]int, len(priorities))...)(o)
		for i, n := range priorities {
			o.Endpoints[i].Priority = n
		}
	}
}

// failing returns which of the named endpoints fail.
func failing(names ...string) func(string) bool {
	return func(e string) bool { return slices.Contains(names, e) }
}

// Both endpoints of priority 0 fail: max_ejected allows one of them to be out, but the spare can
// serve. They come back with their first probe after the repair, at the latest after base_time.
func TestSpareServesWhileAllPrimariesAreEjected(t *testing.T) {
	withEndpoints(t, 3, withPriorities(0, 0, 1), func(t *testing.T, _ *fakeSSP, p *Pool) {
		serve(t, p, 20, 10*msec, failing("a:80", "b:80"))
		a, b := stateOf(p, "a:80"), stateOf(p, "b:80")
		testsupport.MustTrue(t, a == "ejected" && b == "ejected", "a is %s, b is %s", a, b)
		// Over a minute, each probe of a and b costs a request.
		got := serve(t, p, 600, 100*msec, failing("a:80", "b:80"))
		testsupport.True(t, got["c:80"] >= 570, "c got %d of 600 requests: %v", got["c:80"], got)
		repaired := time.Now()
		for stateOf(p, "a:80") != "enabled" || stateOf(p, "b:80") != "enabled" {
			serve(t, p, 1, 10*msec, nil)
			took := time.Since(repaired)
			testsupport.MustTrue(t, took <= testEjection().BaseTime+100*msec, "not back after %v", took)
		}
		got = serve(t, p, 100, 10*msec, nil)
		testsupport.True(t, got["a:80"]+got["b:80"] == 100 && got["a:80"] >= 48 && got["b:80"] >= 48, "after the repair, 100 requests were shared %v", got)
	})
}

// A probe that hangs for a second does not delay the next one.
func TestProbesThatHangBeginEveryBaseTime(t *testing.T) {
	withEndpoints(t, 2, withPriorities(0, 1), func(t *testing.T, _ *fakeSSP, p *Pool) {
		serve(t, p, 5, 10*msec, failing("a:80"))
		var probes []time.Time
		for len(probes) < 4 {
			r := acquire(t, p)
			if r.ex.Endpoint != "a:80" {
				time.Sleep(10 * msec)
				finish(r, false)
				continue
			}
			probes = append(probes, time.Now())
			go func() {
				time.Sleep(sec)
				finish(r, true)
			}()
		}
		for i := range probes[1:] {
			testsupport.Between(t, probes[i+1].Sub(probes[i]), 5*sec, 5100*msec, "%v between two probes, want 5 s")
		}
	})
}

// The primaries are ejected, and then the spare is drained, fails or becomes unreachable. Requests go
// to the primaries again, ejected or not.
func TestPrimariesServeAgainWhenTheSpareCannot(t *testing.T) {
	for name, loseSpare := range map[string]func(p *Pool, s *fakeSSP){
		"drained": func(p *Pool, _ *fakeSSP) { p.SetEndpointState("c:80", balancer.Draining) },
		"unreachable": func(p *Pool, s *fakeSSP) {
			s.refuseAt("c:80")
			for _, c := range s.openTo("c:80") {
				c.goAway(exchange.ClosedByPeer)
			}
		},
	} {
		withEndpoints(t, 3, withPriorities(0, 0, 1), func(t *testing.T, s *fakeSSP, p *Pool) {
			serve(t, p, 20, 10*msec, failing("a:80", "b:80"))
			got := serve(t, p, 10, msec, nil)
			testsupport.MustTrue(t, got["c:80"] == 10, "%s: 10 requests were shared %v", name, got)
			loseSpare(p, s)
			pass(100 * msec)
			got = serve(t, p, 100, 10*msec, failing("a:80", "b:80"))
			testsupport.True(t, got["a:80"] >= 45 && got["b:80"] >= 45, "%s: 100 requests were shared %v", name, got)
		})
	}
}

// A failure is excluded only while its endpoint is out and another endpoint serves.
func TestFailureOfAnExcludedEndpointIsReported(t *testing.T) {
	withEndpoints(t, 2, withPriorities(0, 1), func(t *testing.T, _ *fakeSSP, p *Pool) {
		held := acquireAll(t, p, 3)
		ended := func(r *request, result exchange.Result) bool {
			r.ex.Times.Done = time.Now()
			r.do()
			return r.place.Ended(0, result, 0, &r.ex.Times)
		}
		testsupport.True(t, !ended(held[0], exchange.Failure) && p.Exclusions() == 0, "a failure of an endpoint that serves was reported as excluded")
		serve(t, p, 4, 10*msec, failing("a:80"))
		testsupport.Equal(t, p.Exclusions(), 1, "%d endpoints were excluded")
		testsupport.True(t, ended(held[1], exchange.Failure) && !ended(held[2], exchange.Success), "a late failure of an ejected endpoint was not reported as excluded, or a success was")
		p.SetEndpointState("b:80", balancer.Disabled)
		testsupport.True(t, !ended(acquire(t, p), exchange.Failure), "a failure of the only endpoint that serves was reported as excluded")
	})
}
