package app

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"adbuffer/internal/pool"
	"adbuffer/internal/sspsim"
)

func TestHistoryIsRatesBetweenLooks(t *testing.T) {
	h, now := new(history), time.Now()
	h.note(now, &pool.Snapshot{Arrivals: 1000, Holds: 900, HoldSeconds: 90})
	if len(h.Rate) != 0 {
		t.Fatalf("one look gives %v", h.Rate)
	}
	h.note(now.Add(2*time.Second), &pool.Snapshot{Arrivals: 1300, Holds: 1100, HoldSeconds: 100, Saturation: 0.25, Pending: 3})
	h.note(now.Add(4*time.Second), &pool.Snapshot{Arrivals: 1300, Holds: 1100, HoldSeconds: 100})
	if h.Rate[0] != 150 || h.HoldMillis[0] != 50 || h.Saturation[0] != 0.25 || h.Waiting[0] != 3 || h.Rate[1] != 0 || h.HoldMillis[1] != 0 {
		t.Errorf("history %+v", h)
	}
}

func TestHistoryOfAPoolThatReplacesAnotherBeginsAtZero(t *testing.T) {
	a := sim(t, sspsim.Options{})
	s := setup{ssps: []string{at("a", a)}, routes: []string{to("x", "a")}}
	v := run(t, s)
	w, now := newWatch(zap.NewNop()), time.Now()
	look := func() {
		w.look(now, v.app.current().ssps)
		now = now.Add(historyStep)
	}
	look()
	v.want("/x", "a")
	look()
	s.ssps[0] = at("a", a, "protocol: http1")
	v.reload(s)
	for range 7 { // more than the old pool ever had
		v.want("/x", "a")
	}
	look()
	v.want("/x", "a")
	look()
	if got := w.bySSP["a"].Rate; len(got) != 2 || got[0] != 0.5 || got[1] != 0.5 {
		t.Errorf("the rates are %v, want one request in each of the two spaces between looks at the same pool", got)
	}
	s.ssps, s.routes = []string{at("b", a)}, []string{to("x", "b")}
	v.reload(s)
	look()
	if w.bySSP["a"] != nil || w.bySSP["b"] == nil {
		t.Errorf("the history is %v", w.bySSP)
	}
}

func TestHistoryKeepsTheLastFiveMinutes(t *testing.T) {
	h, now := new(history), time.Now()
	for i := range 400 {
		h.note(now.Add(time.Duration(i)*historyStep), &pool.Snapshot{Arrivals: uint64(i * i)})
	}
	if len(h.Rate) != historyPoints || cap(h.Rate) > 2*historyPoints || h.Rate[historyPoints-1] != float64(399*399-398*398)/2 {
		t.Errorf("%d points, room for %d, the last is %v", len(h.Rate), cap(h.Rate), h.Rate[len(h.Rate)-1])
	}
}

func TestIdleTimeoutToSetIsLoggedOncePerChange(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	w := newWatch(zap.New(core))
	o := &pool.Options{IdleTimeout: 55 * time.Second}
	for _, learned := range []float64{0, 0, 30, 30, 30.2, 20, 20, 70} {
		w.adviseLocked("openx", &pool.Snapshot{LearnedIdleSeconds: learned}, o)
	}
	var set []time.Duration
	for _, e := range logs.All() {
		f := e.ContextMap()
		set = append(set, f["set"].(time.Duration))
		if f["ssp"] != "openx" || f["now"] != 55*time.Second {
			t.Errorf("logged %v", f)
		}
	}
	if len(set) != 2 || set[0] != 28*time.Second || set[1] != 19*time.Second {
		t.Errorf("logged %v to set, want 28s and 19s, once each", set)
	}
}
