package route

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"adbuffer/internal/ssp"
	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

func TestWaterfallContinuesUntilAFill(t *testing.T) {
	for name, first := range map[string]reply{
		"no_bid":         responses(20*ms, 204),
		"empty 200":      {after: 20 * ms, status: 200},
		"redirect":       responses(20*ms, 302),
		"client error":   responses(20*ms, 404),
		"server error":   responses(20*ms, 503),
		"conn_lost":      fails(20*ms, upstream.ConnLost),
		"bad_response":   fails(20*ms, upstream.BadResponse),
		"tls_failed":     fails(20*ms, upstream.TLSFailed),
		"too large":      fails(20*ms, upstream.ResponseTooLarge),
		"overloaded":     fails(20*ms, upstream.Overloaded),
		"draining":       fails(20*ms, upstream.Draining),
		"breaker_open":   fails(20*ms, upstream.BreakerOpen),
		"pending_full":   fails(20*ms, upstream.PendingFull),
		"own deadline":   fails(20*ms, upstream.Deadline),
		"internal":       fails(20*ms, upstream.Internal),
		"ssp_backoff":    fails(20*ms, upstream.SSPBackoff),
		"connect_failed": fails(20*ms, upstream.ConnectFailed),
	} {
		t.Run(name, func(t *testing.T) {
			testsupport.Bubble(t, func(t *testing.T) {
				a, b, c := newFake(t, "a", first), newFake(t, "b", fills(30*ms, "ad")), newFake(t, "c", fills(0, "late"))
				r := get(t)
				res := newRoute(Waterfall, a, b, c).Do(&r.Request, nil, newProcess(t))
				defer res.Release()
				want(t, "result", ended(&res), "fill of b: 200 ad")
				if took := time.Since(r.Received); took != 50*ms {
					t.Errorf("took %v, want 50ms", took)
				}
				a.wantRequests(1)
				b.wantRequests(1)
				c.wantRequests(0)
				if len(res.Legs()) != 2 {
					t.Errorf("legs: %s", legsOf(&res))
				}
			})
		})
	}
}

func TestWaterfallAbandonsATierAtItsTimeout(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b, c := newFake(t, "a", silent), newFake(t, "b", silent), newFake(t, "c", fills(10*ms, "ad"))
		rt := newRoute(Waterfall, a, b, c)
		rt.Targets[0].Timeout, rt.Targets[1].Timeout = 80*ms, 40*ms
		r := get(t)
		res := rt.Do(&r.Request, nil, newProcess(t))
		want(t, "result", ended(&res), "fill of c: 200 ad")
		want(t, "legs", legsOf(&res), "a deadline 80ms, b deadline 40ms, c fill 10ms")
		var starts []time.Duration
		for _, s := range []*fakeSSP{a, b, c} {
			starts = append(starts, s.requests()[0].at.Sub(r.Received))
		}
		if diff := cmp.Diff([]time.Duration{0, 80 * ms, 120 * ms}, starts); diff != "" {
			t.Errorf("tiers started at (-want +got):\n%s", diff)
		}
		res.Release()
		wantEmpty(t, r.Budget)
	})
}

func TestErrorOfATiersTimeoutNamesItsSetting(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		rt := newRoute(Waterfall, newFake(t, "a", silent))
		rt.Targets[0].Timeout = 50 * ms
		r := get(t)
		res := rt.Do(&r.Request, nil, newProcess(t))
		defer res.Release()
		if res.Err == nil || !strings.Contains(res.Err.Error(), "routes[].ssps[].timeout") {
			t.Errorf("the error is %v", res.Err)
		}
	})
}

// A retry stays within the time of its tier.
func TestTimeoutOfATierCoversItsRetries(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a := newFake(t, "a", silent, func(o *ssp.Options) { o.RetryMax = 5 })
		tries := 0
		a.script = func(*upstream.Exchange) reply {
			tries++
			return reply{after: 30 * ms, err: &upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.NotSent}}
		}
		b := newFake(t, "b", fills(0, "ad"))
		rt := newRoute(Waterfall, a, b)
		rt.Targets[0].Timeout = 70 * ms
		r := get(t)
		res := rt.Do(&r.Request, nil, newProcess(t))
		defer res.Release()
		want(t, "legs", legsOf(&res), "a deadline 70ms, b fill 0s")
		if tries != 3 {
			t.Errorf("tried %d times in 70 ms at 30 ms each, want 3", tries)
		}
	})
}

func TestWaterfallStartsNoLegAfterTheDeadline(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b, c := newFake(t, "a", responses(100*ms, 500)), newFake(t, "b", silent), newFake(t, "c", fills(0, "ad"))
		r := get(t)
		res := newRoute(Waterfall, a, b, c).Do(&r.Request, nil, newProcess(t))
		defer res.Release()
		want(t, "result", ended(&res), "server_error of a: 500 no ad for you")
		want(t, "legs", legsOf(&res), "a server_error 100ms, b deadline 200ms")
		c.wantRequests(0)
		if took := time.Since(r.Received); took != deadline {
			t.Errorf("took %v, want %v", took, deadline)
		}
	})
}

func TestWaterfallStopsWhenTheClientHasClosed(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newFake(t, "a", responses(20*ms, 500)), newFake(t, "b", fills(0, "ad"))
		r := get(t)
		r.Gone = func() bool { return time.Since(r.Received) >= 10*ms }
		res := newRoute(Waterfall, a, b).Do(&r.Request, nil, newProcess(t))
		want(t, "result", ended(&res), "client_gone of a")
		want(t, "legs", legsOf(&res), "a server_error 20ms")
		b.wantRequests(0)
		res.Release()
		wantEmpty(t, r.Budget)
	})
}

// A tier that finds the client's connection closed ends the waterfall.
func TestWaterfallStopsAtATierThatFindsTheClientClosed(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newFake(t, "a", fails(0, upstream.ClientGone)), newFake(t, "b", fills(0, "ad"))
		r := get(t)
		res := newRoute(Waterfall, a, b).Do(&r.Request, nil, newProcess(t))
		defer res.Release()
		want(t, "result", ended(&res), "client_gone of a")
		b.wantRequests(0)
	})
}

func TestWaterfallForwardsHEAD(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newFake(t, "a", responses(0, 204)), newFake(t, "b", reply{status: 200})
		r := newClient(t, upstream.HEAD, "", "")
		res := newRoute(Waterfall, a, b).Do(&r.Request, nil, newProcess(t))
		defer res.Release()
		want(t, "result", ended(&res), "fill of b: 200")
	})
}
