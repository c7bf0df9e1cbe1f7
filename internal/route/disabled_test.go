package route

import (
	"testing"

	"adbuffer/internal/balancer"
	"adbuffer/internal/testsupport"
)

// A disabled SSP gets no request: split gives its share to the other SSPs, waterfall continues with
// the next tier, and the parallel modes omit it.
func TestDisabledSSPIsNotAsked(t *testing.T) {
	for _, tt := range []struct {
		mode    Mode
		want    string
		becomes balancer.State
	}{
		{Single, "ssp_disabled of a", balancer.Disabled},
		{Split, "fill of b: 200 ad", balancer.Disabled},
		{Waterfall, "fill of b: 200 ad", balancer.Draining},
		{ParallelFirst, "fill of b: 200 ad", balancer.Draining},
		{ParallelAll, `merged: 200 {"results":[{"ssp":"a","error":"ssp_disabled"},{"ssp":"b","status":200,"ms":0,"body":"ad"}]}`, balancer.Disabled},
	} {
		testsupport.Bubble(t, func(t *testing.T) {
			a, b := newFake(t, "a", fills(0, "other")), newFake(t, "b", fills(0, "ad"))
			a.pool.SetState(tt.becomes)
			rt := newRoute(tt.mode, a, b)
			if tt.mode == Single {
				rt = newRoute(tt.mode, a)
			}
			for range 20 {
				r := get(t)
				res := rt.Do(&r.Request, nil, newProcess(t))
				want(t, "result", ended(&res), tt.want)
				res.Release()
			}
			a.wantRequests(0)

			a.pool.SetState(balancer.Enabled)
			r := get(t)
			res := rt.Do(&r.Request, &rt.Targets[0], newProcess(t))
			want(t, "result of the enabled SSP", ended(&res), "fill of a: 200 other")
			res.Release()
		})
	}
}

func TestSplitWithAllSSPsDisabledEndsAsDisabled(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newFake(t, "a", fills(0, "ad")), newFake(t, "b", fills(0, "ad"))
		a.pool.SetState(balancer.Disabled)
		b.pool.SetState(balancer.Disabled)
		rt := newRoute(Split, a, b)
		r := get(t)
		res := rt.Do(&r.Request, nil, newProcess(t))
		if res.Err == nil || res.Outcome.String() != "ssp_disabled" {
			t.Errorf("%v: %v", res.Outcome, res.Err)
		}
		res.Release()
	})
}
