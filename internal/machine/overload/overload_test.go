package overload

import (
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

const (
	window = 100 * time.Millisecond
	msec   = time.Millisecond
)

// overloaded returns a gate after a lag of 300 ms, which refuses almost all requests except critical ones.
func overloaded(t *testing.T, s Options) *Gate {
	t.Helper()
	g := new(Gate)
	g.Configure(s)
	for range 60 {
		g.Observe(300*msec, window)
		for range 10 {
			g.Refuse(Normal)
			g.Refuse(Sheddable)
		}
	}
	g.Observe(300*msec, window)
	return g
}

var on = Options{Enabled: true, Target: 5 * msec}

func TestAGateRefusesUntilTheLagIsGone(t *testing.T) {
	g := overloaded(t, on)
	for p, want := range map[Priority]string{Normal: "priority normal", Sheddable: "priority sheddable"} {
		r := g.Refuse(p)
		if r == nil || r.Pause < minPause || !strings.Contains(r.Detail, want) || !strings.Contains(r.Detail, "waits 300ms for CPU") || !strings.Contains(r.Detail, "100 %") || !strings.Contains(r.Detail, "server.overload") {
			t.Errorf("a %v request: %+v", p, r)
		}
	}
	if r := g.Refuse(Critical); r != nil {
		t.Errorf("a critical request: %+v", r)
	}
	g.Configure(on) // a reload that changes nothing
	s := g.State()
	if !s.Overloaded || s.Since == nil || s.LagMs != 300 || s.TargetMs != 5 || s.Refusing["normal"] < 0.999 || s.PauseMs == 0 || s.Refused["normal"] == 0 {
		t.Errorf("the state is %+v", s)
	}
	g.Observe(0, window) // requests are still refused, because of the lag before
	if r, s := g.Refuse(Normal), g.State(); r == nil || !strings.Contains(r.Detail, "waits 300ms for CPU") || s.LagMs != 300 || g.Lag() != 0 {
		t.Errorf("after a window without lag: %+v, %+v", r, s)
	}
	for range 100 {
		g.Observe(0, window)
	}
	if r, s := g.Refuse(Normal), g.State(); r != nil || s.Overloaded || s.Since != nil || s.Refusing != nil {
		t.Errorf("10 s later: %+v, %+v", r, s)
	}
}

func TestAGateThatIsOffOrTriesRefusesNothing(t *testing.T) {
	var none *Gate
	for name, g := range map[string]*Gate{"none": none, "off": overloaded(t, Options{Target: 5 * msec}), "not configured": new(Gate)} {
		if r := g.Refuse(Sheddable); r != nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
	g := overloaded(t, Options{Enabled: true, DryRun: true, Target: 5 * msec})
	if r := g.Refuse(Sheddable); r != nil {
		t.Errorf("dry run: %+v", r)
	}
	refused, dry := g.Count(Sheddable)
	testsupport.True(t, refused == 0 && dry != 0, "dry run: %d refused and %d counted", refused, dry)
	n, _ := g.Count(Normal)
	testsupport.True(t, n == 0 && g.State().DryRun, "dry run: %d normal ones refused; the state is %+v", n, g.State())
	g = overloaded(t, on)
	g.Configure(Options{Target: 5 * msec})
	if r := g.Refuse(Sheddable); r != nil || g.State().Overloaded || g.Overloaded() {
		t.Errorf("switched off: %+v", r)
	}
}

func TestALagUpToTheTargetIsNoOverload(t *testing.T) {
	g := new(Gate)
	g.Configure(on)
	g.Observe(5*msec, window)
	testsupport.True(t, !g.State().Overloaded, "a lag of the target is an overload")
	g.Observe(5*msec+1, window)
	testsupport.True(t, g.State().Overloaded && g.Lag() == 5*msec+1, "a lag above the target is no overload: %+v", g.State())
}

func TestAGateCountsTheRequestsOfItsWindows(t *testing.T) {
	g := new(Gate)
	g.Configure(Options{Enabled: true, Target: 10 * msec})
	g.Observe(99*msec, window)
	testsupport.True(t, g.Overloaded() && g.controller.shareToRefuse() == 0, "9.9 targets refuse %v at once", g.controller.shareToRefuse())
	want := 0.0
	for range 10 {
		for range 40 {
			g.Refuse(Normal)
		}
		g.Observe(99*msec, window)
		want = 0.7*want + 40
		testsupport.Equal(t, g.controller.arrivals, [Priorities]float64{Normal: want}, "arrivals are %v")
	}
	refused, _ := g.Count(Normal)
	testsupport.True(t, refused > 0, "nothing is refused, so the refused ones were not counted")
}

func BenchmarkRefuseWithoutOverload(b *testing.B) {
	g := new(Gate)
	g.Configure(on)
	for b.Loop() {
		g.Refuse(Normal)
	}
}
