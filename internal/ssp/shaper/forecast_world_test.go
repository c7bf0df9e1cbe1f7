//go:build !race

package shaper

import (
	"fmt"
	"testing"
)

// forecastRow compares what a shaper forecasts, for limits of 10, 20 and 40 % of the requests, with what a run keeps that
// has had this limit from its begin. Under a limit, a forecast is too low for an hour: it includes the time in which the
// shaper learned.
func forecastRow(seed uint64, t *results, _ *coverages) {
	for _, from := range []struct {
		name            string
		limit, learning float64
	}{{"a dry run", 0, 15}, {"limit 20 %", 400, 60}} {
		r := newRun(newWorld(seed, segments4000), Settings{Limit: from.limit, DryRun: from.limit == 0}, 2000, nil)
		r.minutes(from.learning)
		for _, k := range r.replicas[0].shaper.Report(at(r.t - 0.001)).Kept {
			if k.InForce || k.Share > 0.5 {
				continue
			}
			r := newRun(newWorld(seed, segments4000), Settings{Limit: k.Share * 2000}, 2000, nil)
			r.minutes(from.learning)
			truth := 1 - r.minutes(10).loss()
			name := fmt.Sprintf("u. forecast from %s of limit %v %%: ", from.name, 100*k.Share)
			t.note(name+"points above the truth", 100*(k.Estimate-truth))
			t.note(name+"% of intervals that hold the truth", map[bool]float64{true: 100}[k.Low <= truth && truth <= k.High])
		}
	}
}

// limitTo changes the limit of a run with one replica.
func (r *run) limitTo(perSecond float64) {
	p := r.replicas[0]
	r.limit, p.limit, p.tokens, p.filled = perSecond, perSecond, 0, r.t
	s := &p.shaper.settings
	s.Limit, s.Burst, s.DryRun = perSecond, int(burst(perSecond)), false
}

// In 20 worlds, half of which begin with a dry run and half with a limit of 40 %, the limit becomes 10, 20 or 40 % of the
// requests.
func TestForecastsHoldInSmallWorlds(t *testing.T) {
	held := 0
	for seed := range uint64(20) {
		settings := [2]Settings{{DryRun: true}, {Limit: 40}}[seed%2]
		r := newRun(newWorld(seed+1, [3]int{3, 3, 2}), settings, 100, nil)
		r.minutes(4)
		var k Kept
		for _, k = range r.replicas[0].shaper.Report(at(r.t - 0.001)).Kept {
			if k.Share == [3]float64{0.1, 0.2, 0.4}[seed%3] {
				break
			}
		}
		r.limitTo(k.Limit)
		truth := 1 - r.minutes(3).loss()
		if k.Low <= truth && truth <= k.High {
			held++
		} else {
			t.Logf("world %d, %+v: %+v, truth %v", seed+1, settings, k, truth)
		}
	}
	if held < 18 {
		t.Errorf("%d of 20 intervals hold what the limit then kept, want at least 18", held)
	}
}
