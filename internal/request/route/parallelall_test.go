package route

import (
	"strings"
	"testing"

	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
)

const jsonType = "Content-Type: application/json\r\n"

// all returns a route of mode parallel-all to ssps. It does not wait for secondary SSPs.
func all(ssps []*fakeSSP, secondary ...bool) *Route {
	rt := &Route{Name: "r", Mode: ParallelAll}
	for i, s := range ssps {
		rt.Targets = append(rt.Targets, Target{SSP: s.SSP, Secondary: i < len(secondary) && secondary[i]})
	}
	return rt.ready()
}

func TestLegsAskForUncompressedResponses(t *testing.T) {
	set := func(o *ssp.Options) {
		o.Policy = header.NewPolicy(header.PolicyOptions{Set: []header.NameValue{{Name: "accept-encoding", Value: "br"}, {Name: "X-A", Value: "1"}}})
	}
	remove := func(o *ssp.Options) {
		o.Policy = header.NewPolicy(header.PolicyOptions{Remove: []string{"Accept-Encoding"}})
	}
	for mode, plain := range map[Mode]bool{ParallelAll: true, ParallelFirst: false, Single: false, Waterfall: false, Split: false} {
		testsupport.Bubble(t, func(t *testing.T) {
			a := newFake(t, "a", fills(0, "x"))
			r := newClient(t, exchange.GET, "", "", "Accept-Encoding: gzip, zstd")
			res := newRoute(mode, a).Do(&r.Request, nil, newProcess(t))
			res.Release()
			testsupport.True(t, strings.Contains(a.requests()[0].fields, "Accept-Encoding: identity\r\n") == plain, "mode %s sends %q", mode, a.requests()[0].fields)
			testsupport.True(t, strings.Contains(a.requests()[0].fields, "Accept-Encoding: gzip, zstd\r\n") != plain, "mode %s sends %q", mode, a.requests()[0].fields)
		})
	}
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newFake(t, "a", fills(0, "x"), set), newFake(t, "b", fills(0, "x"), remove)
		r := newClient(t, exchange.GET, "", "", "Accept-Encoding: gzip")
		res := newRoute(ParallelAll, a, b).Do(&r.Request, nil, newProcess(t))
		res.Release()
		want(t, "a set it", a.requests()[0].fields, "X-Forwarded-For: 192.0.2.1\r\nAccept-Encoding: identity\r\nX-A: 1\r\n")
		want(t, "b removes it", b.requests()[0].fields, "X-Forwarded-For: 192.0.2.1\r\nAccept-Encoding: identity\r\n")
	})
}

// If the client chooses an SSP of a parallel route, the route works as in mode single.
func TestChosenSSPIsAskedAlone(t *testing.T) {
	for _, mode := range []Mode{Single, Split, Waterfall, ParallelFirst, ParallelAll} {
		testsupport.Bubble(t, func(t *testing.T) {
			a, b := newFake(t, "a", fills(0, "a")), newFake(t, "b", responses(10*ms, 503))
			rt := newRoute(mode, a, b)
			r := newClient(t, exchange.HEAD, "", "", "Accept-Encoding: gzip")
			_, ok := rt.Allow(exchange.HEAD, &rt.Targets[1])
			testsupport.True(t, ok, "mode %s refuses HEAD to a chosen SSP", mode)
			res := rt.Do(&r.Request, &rt.Targets[1], newProcess(t))
			defer res.Release()
			want(t, "result", ended(&res), "server_error of b: 503 no ad for you")
			a.wantRequests(0)
			testsupport.True(t, strings.Contains(b.requests()[0].fields, "Accept-Encoding: gzip\r\n"), "mode %s sends %q", mode, b.requests()[0].fields)
		})
	}
}

func TestAnEnvelopeIsFilledIfALegIs(t *testing.T) {
	for filled, b := range map[bool]reply{true: fills(ms, "b"), false: responses(ms, 204)} {
		testsupport.Bubble(t, func(t *testing.T) {
			r := get(t)
			res := all([]*fakeSSP{newFake(t, "a", responses(ms, 503)), newFake(t, "b", b)}).Do(&r.Request, nil, newProcess(t))
			defer res.Release()
			testsupport.True(t, res.Outcome == exchange.Merged && res.Filled == filled, "%v, filled is %v", res.Outcome, res.Filled)
		})
	}
}

func TestEnvelopeThatDoesNotFitIsOverloaded(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		body := strings.Repeat(`"`, 500) // twice as large in the envelope
		rt := all([]*fakeSSP{newFake(t, "a", fills(ms, body)), newFake(t, "b", fills(2*ms, body))})
		p := newProcess(t)
		do := func(budget *exchange.Budget) Result {
			r := get(t)
			r.Budget = budget
			res := rt.Do(&r.Request, nil, p)
			t.Cleanup(func() {
				res.Release()
				wantEmpty(t, budget)
			})
			return res
		}
		budget := exchange.NewBudget(1 << 20)
		do(budget)
		need := 2*500 + budget.Used()
		enough := do(exchange.NewBudget(need))
		testsupport.True(t, enough.Outcome == exchange.Merged, "with the %d bytes that it needs: %s", need, ended(&enough))
		short := do(exchange.NewBudget(need - 1))
		want(t, "with one byte less", ended(&short), "overloaded")
		testsupport.True(t, strings.Contains(short.Err.Detail, "see server.max_buffered_bytes"), "detail: %s", short.Err.Detail)
	})
}

// The result holds the envelope's bytes until it is written, and no other bytes.
func TestResultHoldsTheEnvelopesBytes(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		fakes := []*fakeSSP{newFake(t, "a", fills(ms, strings.Repeat("x", 1000))), newFake(t, "b", fills(ms, strings.Repeat("y", 1000)))}
		r := get(t)
		res := all(fakes).Do(&r.Request, nil, newProcess(t))
		held, size := r.Budget.Used(), int64(len(res.Exchange.Response.Body))
		testsupport.Between(t, held, size, size+2*200, "%d bytes are held for an envelope of %d", size)
		res.Release()
		wantEmpty(t, r.Budget)
	})
}
