package shaper

import (
	"testing"
	"time"
)

// Of 1000 requests, 900 are in the bucket 10 and 100 in the bucket 40, which have 100 and 300 fills.
func TestForecastOfLimits(t *testing.T) {
	for _, c := range []struct {
		name     string
		settings Settings
		passes   float64 // the share of the requests that passes
		weight   float64 // of explored fills, which those of bucket 10 are
		want     []Kept
	}{
		{"dry run", Settings{DryRun: true, Limit: 50}, 0.2425, 1, []Kept{
			{20, 0.1, false, 0.60376, 0.72841, 0.77164},
			{40, 0.2, false, 0.71573, 0.77778, 0.81779},
			{50, 0.25, true, 0.73772, 0.79167, 0.83059},
			{80, 0.4, false, 0.79032, 0.83333, 0.86853},
			{120, 0.6, false, 0.85421, 0.88889, 0.91766},
			{160, 0.8, false, 0.91918, 0.94444, 0.96395},
		}},
		{"dry run beside a limit in force", Settings{DryRun: true, Limits: true, Limit: 50}, 0.2425, 1, []Kept{
			{20, 0.1, false, 0.61576, 0.72841, 0.77164},
			{40, 0.2, false, 0.72773, 0.77778, 0.81779},
			{50, 0.25, true, 0.74972, 0.79167, 0.83059},
			{80, 0.4, false, 0.79452, 0.83333, 0.87633},
			{120, 0.6, false, 0.85563, 0.88889, 0.92824},
			{160, 0.8, false, 0.91963, 0.94444, 0.97550},
		}},
		{"limit", Settings{Limit: 60}, 0.291, 20, []Kept{
			{20, 0.1, false, 0.47583, 0.72841, 0.88265},
			{40, 0.2, false, 0.57751, 0.77778, 0.92383},
			{60, 0.3, true, 0.61553, 0.80556, 0.94243},
			{80, 0.4, false, 0.64438, 0.83333, 0.96252},
			{120, 0.6, false, 0.70744, 0.88889, 0.99137},
			{160, 0.8, false, 0.78348, 0.94444, 1},
		}},
		{"limit a little below the rate", Settings{Limit: 197}, 1, 1, []Kept{
			{20, 0.1, false, 0.60376, 0.72841, 0.77164},
			{40, 0.2, false, 0.71573, 0.77778, 0.81779},
			{80, 0.4, false, 0.79032, 0.83333, 0.86853},
			{120, 0.6, false, 0.85421, 0.88889, 0.91766},
			{160, 0.8, false, 0.91918, 0.94444, 0.96395},
			{197, 0.985, true, 0.99035, 0.99583, 0.99868},
		}},
		{"limit that drops nothing", Settings{Limit: 205}, 1, 1, []Kept{
			{20, 0.1, false, 0.60376, 0.72841, 0.77164},
			{40, 0.2, false, 0.71573, 0.77778, 0.81779},
			{80, 0.4, false, 0.79032, 0.83333, 0.86853},
			{120, 0.6, false, 0.85421, 0.88889, 0.91766},
			{160, 0.8, false, 0.91918, 0.94444, 0.96395},
			{205, 1.025, true, 1, 1, 1},
		}},
	} {
		c.settings.Explore, c.settings.Keys = 0.03, 1
		s := New(c.settings, 1, t0)
		s.fills.arrivals[10], s.fills.arrivals[40] = 900, 100
		s.fills.sums[10], s.fills.sums[40] = 100, 300
		s.fills.squares[10], s.fills.squares[40] = 100*c.weight, 300
		s.threshold.share, s.weight = c.passes, c.weight
		s.ledger.fills[Passed] = 99
		window := Window{Time: 10 * time.Second, Arrivals: 2000}
		if got := s.forecast(&window); got != nil {
			t.Errorf("%s: with 99 fills the forecast is %v", c.name, got)
		}
		s.ledger.fills[Explored] = 1
		if got := s.forecast(&Window{Time: time.Second}); got != nil {
			t.Errorf("%s: without requests the forecast is %v", c.name, got)
		}
		got := s.forecast(&window)
		if len(got) != len(c.want) {
			t.Errorf("%s: %d limits, want %d", c.name, len(got), len(c.want))
			continue
		}
		for i, want := range c.want {
			k := got[i]
			near(t, c.name+": limit", k.Limit, want.Limit)
			near(t, c.name+": share", k.Share, want.Share)
			near(t, c.name+": lower bound", k.Low, want.Low)
			near(t, c.name+": estimate", k.Estimate, want.Estimate)
			near(t, c.name+": upper bound", k.High, want.High)
			if k.InForce != want.InForce {
				t.Errorf("%s: of the limit %v, InForce is %v", c.name, k.Limit, k.InForce)
			}
		}
	}
}

// A shaper forecasts from its own decisions: a tenth of the requests has all the fills.
func TestForecastFromDecisions(t *testing.T) {
	s := New(Settings{DryRun: true, Explore: 0.03, Keys: 1}, 1, t0)
	if r := s.Report(at(0)); r.Kept != nil {
		t.Errorf("a new shaper forecasts %v", r.Kept)
	}
	for second := range 200 {
		send(s, segment("good"), 10, 5, float64(second))
		send(s, segment("bad"), 90, 0, float64(second))
	}
	kept := s.Report(at(199.5)).Kept
	if len(kept) != 5 {
		t.Fatalf("the forecast is %v", kept)
	}
	near(t, "the lowest limit", kept[0].Limit, 10)
	if k := kept[1]; k.Estimate < 0.97 || k.Low < 0.92 || k.High < 0.99 {
		t.Errorf("of the limit that all good requests pass: %+v", k)
	}
	send(s, segment("good"), 10, 10, 200)
	if kept = s.Report(at(3600)).Kept; kept != nil {
		t.Errorf("an hour later without requests the forecast is %v", kept)
	}
	f := fillsByScore{}
	f.arrivals[5] = 100
	f.advance(1740)
	near(t, "the arrivals after the half-life", f.arrivals[5], 50)
}
