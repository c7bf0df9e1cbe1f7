package load

import (
	"math"
	"slices"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

func all(p Plan) []arrival { return slices.Collect(p.arrivals) }

func TestConstantRateIsEvenlySpaced(t *testing.T) {
	got := all(Plan{Phases: []Phase{{Duration: time.Second, From: 100, To: 100}}})
	testsupport.MustEqual(t, len(got), 100, "%d arrivals")
	for i, a := range got {
		if want := time.Duration(i) * 10 * time.Millisecond; (a.due - want).Abs() > time.Microsecond {
			t.Fatalf("arrival %d at %v, want %v", i, a.due, want)
		}
	}
}

func TestAClosedLoopPausesBeforeItsSecondHalf(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		g := newGenerator(&Plan{Requests: 5, Pause: time.Minute, Phases: []Phase{{Duration: time.Hour}}}, nil)
		g.base, g.stop = time.Now(), t.Context()
		flushed := 0
		for i, want := range []time.Duration{0, 0, 0, time.Minute, time.Minute} {
			a, ok := g.next(func() { flushed++ })
			testsupport.True(t, ok && a.due == want, "request %d is sent: %v, after %v, want %v", i, ok, a.due, want)
		}
		_, ok := g.next(nil)
		testsupport.True(t, !ok && flushed == 2, "a sixth request is sent: %v; flushed %d times, want 2", ok, flushed)
	})
}

func TestRampComesToItsAreaAndPassesItsMiddleLate(t *testing.T) {
	got := all(Plan{Phases: []Phase{{Duration: 2 * time.Second, From: 0, To: 1000}}})
	if n := len(got); n < 999 || n > 1001 {
		t.Fatalf("%d arrivals, want 1000", n)
	}
	// A ramp from 0 reaches half of its area at 1/√2 of its time.
	middle := got[500].due.Seconds()
	if want := 2 / math.Sqrt2; math.Abs(middle-want) > 0.01 {
		t.Errorf("half of the requests at %.3f s, want %.3f", middle, want)
	}
	down := all(Plan{Phases: []Phase{{Duration: 2 * time.Second, From: 1000, To: 0}}})
	testsupport.Between(t, len(down), 999, 1001, "ramp down: %d arrivals, want 1000")
}

func TestPoissonHasTheRateAndTheSpread(t *testing.T) {
	got := all(Plan{Phases: []Phase{{Duration: 100 * time.Second, From: 1000, To: 1000}}, Poisson: true})
	if n := len(got); math.Abs(float64(n)-1e5) > 1500 { // five standard deviations
		t.Fatalf("%d arrivals, want about 100000", n)
	}
	var sum, squares float64
	for i := 1; i < len(got); i++ {
		gap := (got[i].due - got[i-1].due).Seconds()
		sum += gap
		squares += gap * gap
	}
	n := float64(len(got) - 1)
	mean := sum / n
	deviation := math.Sqrt(squares/n - mean*mean)
	testsupport.Between(t, deviation/mean, 0.97, 1.03, "gaps spread by %.3f of their mean, want 1")
}

func TestPhaseWithoutRateHasNoArrivals(t *testing.T) {
	for _, poisson := range []bool{false, true} {
		got := all(Plan{Phases: []Phase{{Duration: time.Second}, {Duration: time.Second, From: 20, To: 20}},
			Poisson: poisson})
		testsupport.True(t, len(got) != 0, "no arrivals after the pause")
		for _, a := range got {
			testsupport.True(t, a.phase == 1 && a.due >= time.Second, "arrival %+v in the pause", a)
		}
	}
}

func FuzzArrivalsStayInTheirPhaseAndInOrder(f *testing.F) {
	f.Add(0.0, 1000.0, int64(1e9), false)
	f.Add(1000.0, 0.0, int64(1e9), true)
	f.Add(1e-7, 1e-6, int64(1), true)
	f.Fuzz(func(t *testing.T, from, to float64, duration int64, poisson bool) {
		sane := func(r float64) bool { return r >= 0 && r <= 1e6 }
		if !sane(from) || !sane(to) || duration <= 0 || duration > 1e9 {
			return
		}
		p := Phase{Duration: time.Duration(duration), From: from, To: to}
		last, n := time.Duration(0), 0
		for a := range (&Plan{Phases: []Phase{p}, Poisson: poisson}).arrivals {
			if a.due < last || a.due >= p.Duration {
				t.Fatalf("arrival at %v behind one at %v in a phase of %v", a.due, last, p.Duration)
			}
			last, n = a.due, n+1
			testsupport.MustTrue(t, float64(n) <= 2*p.Requests()+100, "more than %d arrivals, expected %.0f", n, p.Requests())
		}
	})
}
