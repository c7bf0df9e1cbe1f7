package sspsim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// quantiles draws n values and returns their median, the quantile q and the largest.
func quantiles(n int, q float64, draw func(*rand.Rand) float64) (median, high, most float64) {
	r := rand.New(rand.NewPCG(1, 2))
	all := make([]float64, n)
	for i := range all {
		all[i] = draw(r)
	}
	slices.Sort(all)
	return all[n/2], all[int(q*float64(n))], all[n-1]
}

func near(got, want float64) bool { return got > want*0.97 && got < want*1.03 }

func TestLatenciesHaveTheQuantilesAskedFor(t *testing.T) {
	const n = 50_000
	ms := float64(time.Millisecond)
	draw := func(l Latency) func(*rand.Rand) float64 {
		testsupport.NoError(t, (Behaviour{Latency: l}).Validate())
		return func(r *rand.Rand) float64 { return float64(l.draw(r)) }
	}
	if median, p99, most := quantiles(n, 0.99, draw(Lognormal(80*time.Millisecond, 250*time.Millisecond))); !near(median, 80*ms) || !near(p99, 250*ms) || most < 300*ms {
		t.Errorf("lognormal: p50 %v, p99 %v, most %v", median/ms, p99/ms, most/ms)
	}
	cut := Lognormal(80*time.Millisecond, 250*time.Millisecond)
	cut.Max = Duration(200 * time.Millisecond)
	if median, _, most := quantiles(n, 0.99, draw(cut)); !near(median, 80*ms) || most != 200*ms {
		t.Errorf("cut: p50 %v, most %v", median/ms, most/ms)
	}
	if median, p99, most := quantiles(n, 0.99, draw(Constant(7*time.Millisecond))); median != 7*ms || p99 != 7*ms || most != 7*ms {
		t.Errorf("constant: %v, %v, %v", median, p99, most)
	}
	both := Constant(5 * time.Millisecond)
	both.Slow, both.SlowShare = Distribution{P50: Duration(time.Second), P99: Duration(2 * time.Second)}, 0.1
	if median, p95, _ := quantiles(n, 0.95, draw(both)); median != 5*ms || !near(p95, 1000*ms) { // the middle of the slow tenth
		t.Errorf("bimodal: p50 %v, p95 %v", median/ms, p95/ms)
	}
	if _, _, most := quantiles(n, 0.99, draw(Latency{})); most != 0 {
		t.Errorf("no latency: %v", most)
	}
	size := Size{P50: 2000, P95: 20_000, Max: 100_000}
	drawSize := func(r *rand.Rand) float64 { return float64(size.draw(r)) }
	if median, p95, most := quantiles(n, 0.95, drawSize); !near(median, 2000) || !near(p95, 20_000) || most != 100_000 {
		t.Errorf("sizes: p50 %v, p95 %v, most %v", median, p95, most)
	}
}

func TestLatencyPassesBeforeTheResponse(t *testing.T) {
	const latency = 60 * time.Millisecond
	for _, protocol := range []Protocol{HTTP1, H2C} {
		s := start(t, Options{Protocol: protocol, Behaviour: Behaviour{Latency: Constant(latency)}})
		begin := time.Now()
		if protocol == HTTP1 {
			dial(t, s).wantOpen()
		} else {
			h := dialH2C(t, s)
			for id := uint32(1); id < 100; id += 2 {
				h.get(id)
			}
			for ended := 0; ended < 50; {
				if f, ok := h.next().(interface{ StreamEnded() bool }); ok && f.StreamEnded() {
					ended++
				}
			}
			testsupport.AtLeast(t, s.Counters().MaxInFlight, 2, "%d streams at most wait together")
		}
		if took := time.Since(begin); took < latency {
			t.Errorf("%s: response after %v, want %v at least", protocol, took, latency)
		}
	}
}

func TestRequestsBeyondTheCapacityTakeLonger(t *testing.T) {
	l := Latency{Capacity: 10}
	for inFlight, want := range map[int64]time.Duration{1: time.Second, 10: time.Second, 25: 2500 * time.Millisecond} {
		testsupport.Equal(t, l.slowed(time.Second, inFlight), want, "%[2]d requests: %[1]v", inFlight)
	}
	for _, protocol := range []Protocol{HTTP1, H2C} {
		s := start(t, Options{Protocol: protocol, Behaviour: Behaviour{Latency: Constant(10 * time.Minute)}})
		var h *h2Client
		if protocol == H2C {
			h = dialH2C(t, s)
		}
		for i := range uint32(3) {
			if h != nil {
				h.get(2*i + 1)
			} else {
				dial(t, s).get("stays")
			}
		}
		s.await(t, "three requests are in flight", func(c Counters) bool { return c.InFlight == 3 })
		s.mustSet(t, Behaviour{Latency: Latency{Distribution: Distribution{Constant: Duration(30 * time.Millisecond)}, Capacity: 2}})
		began := time.Now()
		if h != nil {
			h.ask(7)
		} else {
			dial(t, s).wantOpen()
		}
		if took := time.Since(began); took < 60*time.Millisecond {
			t.Errorf("%v: a fourth request for a capacity of two took %v, want twice its latency", protocol, took)
		}
	}
}
