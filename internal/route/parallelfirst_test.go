package route

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/ssp"
	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"

	"github.com/google/go-cmp/cmp"
)

func TestFirstFillWinsAndTheOtherLegsAreAbandonedAtOnce(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newFake(t, "a", silent), newFake(t, "b", fills(120*ms, "slow"))
		c, d := newFake(t, "c", fills(40*ms, "ad")), newFake(t, "d", responses(20*ms, 204))
		r := get(t)
		p := newProcess(t)
		res := newRoute(ParallelFirst, a, b, c, d).Do(&r.Request, nil, p)
		if took := time.Since(r.Received); took != 40*ms {
			t.Errorf("took %v, want 40ms", took)
		}
		want(t, "result", ended(&res), "fill of c: 200 ad")
		want(t, "legs", legsOf(&res), "a cancelled 40ms, b cancelled 40ms, c fill 40ms, d no_bid 20ms")

		synctest.Wait() // the abandoned legs end now, not later
		if n := p.InFlight.Now(); n != 0 {
			t.Errorf("%d legs are in flight after the response", n)
		}
		for _, f := range []*fakeSSP{a, b} {
			f.wantCounted(map[upstream.Outcome]int{upstream.Cancelled: 1})
		}
		c.wantCounted(map[upstream.Outcome]int{upstream.Fill: 1})
		d.wantCounted(map[upstream.Outcome]int{upstream.NoBid: 1})
		for _, f := range []*fakeSSP{a, b, c, d} {
			if at := f.requests()[0].at; at != r.Received {
				t.Errorf("%s received its request after %v", f.Name(), at.Sub(r.Received))
			}
		}
		res.Release()
		wantEmpty(t, r.Budget)
	})
}

// A connection that abandons a leg slowly does not delay the response.
func TestResponseDoesNotWaitForAbandonedLegs(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newFake(t, "a", reply{stubborn: time.Second}), newFake(t, "b", fills(10*ms, "ad"))
		r := get(t)
		p := newProcess(t)
		res := newRoute(ParallelFirst, a, b).Do(&r.Request, nil, p)
		want(t, "result", ended(&res), "fill of b: 200 ad")
		if took := time.Since(r.Received); took != 10*ms {
			t.Errorf("took %v, want 10ms", took)
		}
		res.Release()
		budget := r.Budget
		if n := budget.Used(); n == 0 || p.InFlight.Now() != 1 {
			t.Errorf("the loser holds %d bytes of copies, and %d legs are in flight", n, p.InFlight.Now())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		wantEmpty(t, budget)
	})
}

func TestParallelFirstEndsByTheDeadline(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		r := get(t)
		res := newRoute(ParallelFirst, newFake(t, "a", silent), newFake(t, "b", silent)).Do(&r.Request, nil, newProcess(t))
		defer res.Release()
		want(t, "result", ended(&res), "deadline of a")
		if took := time.Since(r.Received); took != deadline {
			t.Errorf("took %v, want %v", took, deadline)
		}
	})
}

// A leg that starts after the first fill sends no request.
func TestLegThatStartsAfterTheFillIsNotSent(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a := newFake(t, "a", fills(0, "ad"))
		r := get(t)
		p := newProcess(t)
		rt := newRoute(ParallelFirst, a)
		warm := rt.Do(&r.Request, nil, p) // from now on there is a connection
		warm.Release()
		f, err := rt.newFanout(&r.Request, p, true)
		if err != nil {
			t.Fatal(err)
		}
		f.legs[0].cancel.End()
		f.start(&f.legs[0])
		l := <-f.ended
		if l.outcome != upstream.Cancelled || l.err == nil {
			t.Errorf("the leg ended as %v, %v", l.outcome, l.err)
		}
		a.wantRequests(1)
		a.wantCounted(map[upstream.Outcome]int{upstream.Fill: 1, upstream.Cancelled: 1})
		f.detach()
		wantEmpty(t, r.Budget)
	})
}

func TestLegsOverTheLimitAreOverloaded(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b, c := newFake(t, "a", responses(10*ms, 500)), newFake(t, "b", fills(20*ms, "ad")), newFake(t, "c", fills(0, "ad"))
		r := get(t)
		p := newProcess(t)
		p.InFlight.SetLimit(3)
		p.InFlight.Acquire() // the request itself
		res := newRoute(ParallelFirst, a, b, c).Do(&r.Request, nil, p)
		defer res.Release()
		want(t, "result", ended(&res), "fill of b: 200 ad")
		want(t, "legs", legsOf(&res), "a server_error 10ms, b fill 20ms, c overloaded 0s")
		c.wantRequests(0)
		c.wantCounted(map[upstream.Outcome]int{upstream.Overloaded: 1})
		synctest.Wait()
		if n := p.InFlight.Now(); n != 1 {
			t.Errorf("%d are in flight, want the request alone", n)
		}
		p.InFlight.Release()
	})
}

func TestOverloadedNamesItsLimit(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a := newFake(t, "a", fills(0, "ad"))
		r := get(t)
		p := newProcess(t)
		p.InFlight.SetLimit(1)
		p.InFlight.Acquire()
		res := newRoute(ParallelFirst, a).Do(&r.Request, nil, p)
		want(t, "result", ended(&res), "overloaded of a")
		want(t, "detail", res.Err.Detail, "1 of 1 requests and legs are in flight; see server.max_in_flight")
		res.Release()
		p.InFlight.Release()
	})
}

func TestCopyThatDoesNotFitIsOverloaded(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a := newFake(t, "a", fills(0, "ad"))
		r := newClient(t, upstream.POST, "q", strings.Repeat("b", 100))
		r.Budget = upstream.NewBudget(100)
		res := newRoute(ParallelFirst, a).Do(&r.Request, nil, newProcess(t))
		defer res.Release()
		want(t, "result", ended(&res), "overloaded")
		if !strings.Contains(res.Err.Detail, "0 of 100 are held; see server.max_buffered_bytes") {
			t.Errorf("detail: %s", res.Err.Detail)
		}
		a.wantRequests(0)
		wantEmpty(t, r.Budget)
	})
}

func TestClosedClientConnectionEndsAllLegs(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newFake(t, "a", silent), newFake(t, "b", fails(30*ms, upstream.ClientGone))
		r := get(t)
		res := newRoute(ParallelFirst, a, b).Do(&r.Request, nil, newProcess(t))
		defer res.Release()
		want(t, "result", ended(&res), "client_gone of b")
		if took := time.Since(r.Received); took != 30*ms {
			t.Errorf("took %v, want 30ms", took)
		}
		synctest.Wait()
		a.wantCounted(map[upstream.Outcome]int{upstream.Cancelled: 1})
	})
}

func TestLegThatPanicsIsInternal(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newFake(t, "a", reply{after: 10 * ms, panics: true}), newFake(t, "b", fills(20*ms, "ad"))
		r := get(t)
		var panics []any
		p := &Process{InFlight: new(ssp.InFlight), Panicked: func(v any, stack []byte) { panics = append(panics, v, len(stack) > 0) }}
		res := newRoute(ParallelFirst, a, b).Do(&r.Request, nil, p)
		want(t, "result", ended(&res), "fill of b: 200 ad")
		want(t, "legs", legsOf(&res), "a internal 0s, b fill 20ms")
		if diff := cmp.Diff([]any{"the connection is broken", true}, panics); diff != "" {
			t.Errorf("panics (-want +got):\n%s", diff)
		}
		synctest.Wait()
		if n := p.InFlight.Now(); n != 0 {
			t.Errorf("%d legs are in flight", n)
		}
		res.Release()
	})
}

// Each leg sends the same target, fields and body.
func TestLegsSendTheSameRequest(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		var fakes []*fakeSSP
		for _, n := range []string{"a", "b", "c"} {
			fakes = append(fakes, newFake(t, n, responses(ms, 204)))
		}
		r := newClient(t, upstream.POST, "a=1&b=2", `{"id":"1"}`, "Cookie: id=1", "X-Adbuffer-Ssp: x", "Connection: X-Hop", "X-Hop: 1", "Accept-Encoding: gzip")
		res := newRoute(ParallelFirst, fakes...).Do(&r.Request, nil, newProcess(t))
		defer res.Release()
		for _, f := range fakes {
			want := []receivedRequest{{r.Received, "POST", "/bid?a=1&b=2", "Cookie: id=1\r\nAccept-Encoding: gzip\r\nX-Forwarded-For: 192.0.2.1\r\n", `{"id":"1"}`}}
			if diff := cmp.Diff(want, f.requests(), cmp.AllowUnexported(receivedRequest{})); diff != "" {
				t.Errorf("%s received (-want +got):\n%s", f.Name(), diff)
			}
		}
	})
}
