package scenario

import (
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

func TestTheBestRequestsComeFirst(t *testing.T) {
	segments := []load.Segment{{Share: 0.5, Rate: 0.001}, {Share: 0.1, Rate: 0.4}, {Share: 0.4, Rate: 0.1}}
	for share, want := range map[float64]float64{0.05: 0.02, 0.1: 0.04, 0.3: 0.06, 1: 0.0805} {
		testsupport.Between(t, best(segments, share), want-1e-9, want+1e-9, "of a share of %[2]v: %[1]v fills", share)
	}
}

// All requests have the same segment, and the limit sends half of 100 million, so that the best of them bring 50 million
// times the rate of the segment. The dropped requests lose half of the fills.
func TestAShaperIsJudged(t *testing.T) {
	plan := load.Plan{Phases: []load.Phase{{Duration: 2 * time.Minute, Unrecorded: true}, {Duration: 100 * time.Second}},
		Templates: []load.Template{{Path: "/", Segments: []int{1}}}}
	rate := plan.Segments()[0].Rate
	e := &Shape{SSP: "a", Limit: 500, Burst: 50, Fills: 0.92, Simulated: "94 %"}
	type measured struct {
		fills     float64 // as a share of those of the best requests
		perSecond uint64
		loss      [3]float64
		warmUp    time.Duration
	}
	good := measured{0.93, 550, [3]float64{0.4, 0.45, 0.51}, 2 * time.Minute}
	for name, row := range map[string]struct {
		change func(m *measured)
		want   string // the outcomes of the promises
	}{
		"all is well":       {func(*measured) {}, "HELD HELD HELD"},
		"too few fills":     {func(m *measured) { m.fills = 0.91 }, "BROKEN HELD HELD"},
		"too many requests": {func(m *measured) { m.perSecond = 551 }, "HELD BROKEN HELD"},
		"too low":           {func(m *measured) { m.loss[2] = 0.49 }, "HELD HELD BROKEN"},
		"too high":          {func(m *measured) { m.loss[0] = 0.505 }, "HELD HELD BROKEN"},
		"a short run":       {func(m *measured) { m.fills, m.warmUp = 0.91, time.Minute }, "BROKEN † HELD HELD"},
	} {
		m := good
		row.change(&m)
		plan.Phases[0].Duration = m.warmUp
		fills := uint64(m.fills * 50_000_000 * rate) // so many that their rounding is nothing
		sum := load.Summary{Seconds: 100_000, Offered: 100_000_000, Statuses: map[int]uint64{200: fills}, Fills: 1e8 * rate, Shaped: float64(fills)}
		var got []string
		rep := new(results.Report)
		e.judge(rep, plan, &rig.Figures{Summary: sum, Phases: []load.Summary{{}, sum}}, m.perSecond, m.loss)
		for _, v := range rep.Verdicts {
			outcome, _, _ := strings.Cut(v.String(), "**:")
			got = append(got, strings.TrimPrefix(outcome, "**"))
		}
		testsupport.Equal(t, strings.Join(got, " "), row.want, "%[2]s: %[1]s", name)
	}
}

func TestAScenarioIsComparedWithoutSomeLines(t *testing.T) {
	s := &Scenario{Name: "x", Adbuffer: Adbuffer{Config: "a: 1\n  shape: {}\nb: 2\n", CompareWithout: "shape:"}}
	s.Expect.Shape = new(Shape)
	other := s.without()
	testsupport.Equal(t, other.Adbuffer, Adbuffer{Config: "a: 1\nb: 2\n"}, "%+v")
	testsupport.True(t, other.Expect.Shape == nil && s.Expect.Shape != nil, "the comparison is judged, or the scenario is not")
}
