package route

import (
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"

	"github.com/google/go-cmp/cmp"
)

// A connection that abandons a leg slowly does not delay the response.
func TestResponseDoesNotWaitForAbandonedLegs(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newFake(t, "a", reply{stubborn: time.Second}), newFake(t, "b", fills(10*ms, "ad"))
		r := get(t)
		p := newProcess(t)
		res := newRoute(ParallelFirst, a, b).Do(&r.Request, nil, p)
		want(t, "result", ended(&res), "fill of b: 200 ad")
		testsupport.Equal(t, time.Since(r.Received), 10*ms, "took %v, want 10ms")
		res.Release()
		budget := r.Budget
		n := budget.Used()
		testsupport.True(t, n != 0 && p.InFlight.Now() == 1, "the loser holds %d bytes of copies, and %d legs are in flight", n, p.InFlight.Now())
		time.Sleep(time.Second)
		synctest.Wait()
		wantEmpty(t, budget)
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
		testsupport.NoError(t, err)
		f.legs[0].cancel.End()
		f.start(&f.legs[0])
		l := <-f.ended
		testsupport.True(t, l.outcome == exchange.Cancelled && l.err != nil, "the leg ended as %v, %v", l.outcome, l.err)
		a.wantRequests(1)
		a.wantCounted(map[exchange.Outcome]int{exchange.Fill: 1, exchange.Cancelled: 1})
		f.detach()
		wantEmpty(t, r.Budget)
	})
}

// Each leg sends the same target, fields and body.
func TestLegsSendTheSameRequest(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		var fakes []*fakeSSP
		for _, n := range []string{"a", "b", "c"} {
			fakes = append(fakes, newFake(t, n, responses(ms, 204)))
		}
		r := newClient(t, exchange.POST, "a=1&b=2", `{"id":"1"}`, "Cookie: id=1", "X-Adbuffer-Ssp: x", "Connection: X-Hop", "X-Hop: 1", "Accept-Encoding: gzip")
		res := newRoute(ParallelFirst, fakes...).Do(&r.Request, nil, newProcess(t))
		defer res.Release()
		for _, f := range fakes {
			want := []receivedRequest{{r.Received, "POST", "/bid?a=1&b=2", "Cookie: id=1\r\nAccept-Encoding: gzip\r\nX-Forwarded-For: 192.0.2.1\r\n", `{"id":"1"}`}}
			diff := cmp.Diff(want, f.requests(), cmp.AllowUnexported(receivedRequest{}))
			testsupport.True(t, diff == "", "%s received (-want +got):\n%s", f.Name(), diff)
		}
	})
}
