package route

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

// mirroring returns a route to main with a mirror to copy.
func mirroring(main, copied *fakeSSP, share float64, budget int64) *Route {
	rt := newRoute(Single, main)
	b := new(upstream.Budget)
	b.SetLimit(budget)
	rt.Mirror = &Mirror{SSP: copied.SSP, Share: share, Budget: b, Stats: new(MirrorStats)}
	return rt
}

// The mirror's SSP gets the same requests. Requests do not wait for it, and never get its response.
func TestMirrorGetsCopies(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newFake(t, "a", fills(10*ms, "ad")), newFake(t, "b", fills(50*ms, "other"))
		rt := mirroring(a, b, 1, 1<<20)
		for range 5 {
			began := time.Now()
			r := get(t)
			res := rt.Do(&r.Request, nil, newProcess(t))
			want(t, "result", ended(&res), "fill of a: 200 ad")
			if took := time.Since(began); took != 10*ms {
				t.Errorf("the request took %v", took)
			}
			res.Release()
			clear(r.Body) // the memory belongs to the next request
		}
		time.Sleep(time.Second)
		a.wantAsked(5)
		b.wantAsked(5)
		if a.seen[4].target != b.seen[4].target || a.seen[4].fields != b.seen[4].fields {
			t.Errorf("a was asked %+v, the mirror %+v", a.seen[4], b.seen[4])
		}
		if n := rt.Mirror.Stats.outcomes[upstream.Fill].Load(); n != 5 || rt.Mirror.Budget.Used() != 0 || rt.Mirror.Stats.inFlight.Load() != 0 {
			t.Errorf("%d fills, %d bytes held, %d in flight", n, rt.Mirror.Budget.Used(), rt.Mirror.Stats.inFlight.Load())
		}
	})
}

// A mirror that never responds uses only its own limits: copies beyond them are dropped.
func TestBlackHoledMirrorIsDropped(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newFake(t, "a", fills(0, "ad")), newFake(t, "b", silent)
		rt := mirroring(a, b, 1, 1<<20)
		p := newProcess(t)
		p.InFlight.SetLimit(40)
		for range 100 {
			r := get(t)
			res := rt.Do(&r.Request, nil, p)
			want(t, "result", ended(&res), "fill of a: 200 ad")
			res.Release()
		}
		if n := rt.Mirror.Stats.inFlight.Load(); n != 10 {
			t.Errorf("%d mirrored requests are in flight, want a quarter of 40", n)
		}
		if n := rt.Mirror.Stats.dropped.Load(); n != 90 {
			t.Errorf("%d were dropped, want 90", n)
		}
		time.Sleep(10 * time.Second)
		if n := rt.Mirror.Stats.outcomes[upstream.Deadline].Load(); n != 10 {
			t.Errorf("%d ended at their deadline, want 10", n)
		}
	})
}

// If its budget has no room, no request is mirrored.
func TestMirrorWithoutBudgetIsDropped(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newFake(t, "a", fills(0, "ad")), newFake(t, "b", fills(0, "ad"))
		rt := mirroring(a, b, 1, 10)
		r := get(t)
		res := rt.Do(&r.Request, nil, newProcess(t))
		want(t, "result", ended(&res), "fill of a: 200 ad")
		res.Release()
		time.Sleep(time.Second)
		b.wantAsked(0)
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(NewMirrorCollector(func() *Table { return NewTable([]*Route{rt}) }))
		if n, err := testutil.GatherAndCount(registry); err != nil || n != len(mirrorOutcomes)+1 {
			t.Errorf("%d series (%v), want %d", n, err, len(mirrorOutcomes)+1)
		}
		families, _ := registry.Gather()
		if text := families[0].String(); !strings.Contains(text, `value:"dropped"`) {
			t.Errorf("the metric is %s", text)
		}
		if n := rt.Mirror.Stats.dropped.Load(); n != 1 {
			t.Errorf("%d were dropped, want 1", n)
		}
	})
}

func TestMirrorsShareIsRandom(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newFake(t, "a", fills(0, "ad")), newFake(t, "b", fills(0, "ad"))
		rt := mirroring(a, b, 0.25, 1<<20)
		for range 1000 {
			r := get(t)
			res := rt.Do(&r.Request, nil, newProcess(t))
			res.Release()
			time.Sleep(ms)
		}
		// 250 are expected, the standard deviation is 14.
		if n := rt.Mirror.Stats.outcomes[upstream.Fill].Load(); n < 180 || n > 320 {
			t.Errorf("%d of 1000 requests were mirrored", n)
		}
	})
}
