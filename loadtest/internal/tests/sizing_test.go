package tests

import (
	"testing"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
)

func TestACourseSettlesWhenItsLimitStaysInTheBand(t *testing.T) {
	for _, c := range []struct {
		limits []float64
		want   float64
	}{
		{[]float64{50, 60, 100, 110, 114, 100}, 2},
		{[]float64{50, 60, 100, 150, 100, 100}, 4},
		{[]float64{50, 100, 100, 100, 100, 50}, never},
		{[]float64{50, 100, 100, 100, 100, 100}, 1},
	} {
		if got := (&course{limits: c.limits}).settled(0, 100); got != c.want {
			t.Errorf("%v: in band after %v s, want %v", c.limits, got, c.want)
		}
	}
}

// Each figure of a course that went well keeps its bound, and one that went wrong does not.
func TestFiguresOfCourses(t *testing.T) {
	for _, tr := range sizingTraces() {
		phases := func(failed uint64) (all []load.Summary) {
			for _, p := range tr.phases {
				n := uint64(p.Requests())
				all = append(all, load.Summary{Name: p.Name, Offered: n, Answered: n - failed*n/2, Failed: failed * n / 2})
			}
			return all
		}
		seconds := 0
		for _, p := range tr.phases {
			seconds += int(p.Duration.Seconds())
		}
		made := func(failed uint64, limit func(second int) float64) *course {
			c := &course{Figures: &rig.Figures{Phases: phases(failed)}}
			for _, p := range c.Phases {
				c.Answered, c.Failed = c.Answered+p.Answered, c.Failed+p.Failed
			}
			for i := range seconds {
				c.limits = append(c.limits, limit(i))
			}
			return c
		}
		last := tr.phases[len(tr.phases)-1]
		need := placesFor(last.To, sizingHold)
		switch {
		case tr.ssp.Latency.Capacity > 0:
			need = 1.3 * sizingCapacity
		case len(tr.changes) == 1: // the SSP becomes slower
			need = placesFor(last.To, 1.42*sizingHold)
		}
		well := made(0, func(second int) float64 {
			if second < 15 && len(tr.changes) != 2 {
				return need / 4
			}
			return need
		})
		wrong := made(1, func(second int) float64 {
			if second < 15 {
				return 20
			}
			return 2000
		})
		for _, f := range tr.figures {
			if v := f.of(well); !f.held(v) {
				t.Errorf("%s: %s of a good course is %v, want %v", tr.name, f.name, f.text(v), f.bound)
			}
			if v := f.of(wrong); f.held(v) {
				t.Errorf("%s: %s of a bad course is %v, which holds as %v", tr.name, f.name, f.text(v), f.bound)
			}
		}
	}
}
