package app

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"adbuffer/internal/pool"
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
	h.note(now.Add(6*time.Second), &pool.Snapshot{}) // another pool of that name
	h.note(now.Add(8*time.Second), &pool.Snapshot{Arrivals: 10})
	if n := len(h.Rate); n != 3 || h.Rate[2] != 5 {
		t.Errorf("after a pool took another's place the rates are %v", h.Rate)
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
