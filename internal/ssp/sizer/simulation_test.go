//go:build !race

package sizer

import (
	"flag"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"adbuffer/internal/test/testsupport"
)

// The table of README's kind: go test ./internal/ssp/sizer -run Sizer -v -seeds 20
var (
	seeds = flag.Int("seeds", 1, "how many random courses of each scenario")
	only  = flag.String("scenario", "", "only the scenarios whose names begin like this, with the sizer's decisions")
)

// results are the figures of a scenario for each seed.
type results [][]float64

func (s *scenario) repeat(t *testing.T) (all results) {
	all = make(results, *seeds)
	for seed := range *seeds {
		tr := s.traffic
		c := newSizer(&tr, uint64(seed)+100, standard)
		all[seed], _ = s.run(c, &tr, uint64(seed)+100)
		if *only != "" && seed == 0 {
			c.log(t)
		}
	}
	return all
}

// of returns the median of a figure, and its extremes.
func (r results) of(figure int) (middle, least, most float64) {
	var all []float64
	for _, figures := range r {
		all = append(all, figures[figure])
	}
	slices.Sort(all)
	return all[len(all)/2], all[0], all[len(all)-1]
}

// side by side runs f for each index on all cores.
func sideBySide(n int, f func(i int)) {
	var running sync.WaitGroup
	places := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range n {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			f(i)
		})
	}
	running.Wait()
}

// The median of the courses must keep the bound of each figure.
func TestSizerInAllScenarios(t *testing.T) {
	testsupport.Long(t)
	rows := make([]string, len(scenarios))
	sideBySide(len(scenarios), func(i int) {
		s := scenarios[i]
		if !strings.HasPrefix(s.name, *only) {
			return
		}
		courses := s.repeat(t)
		for j := range s.figures {
			f := &s.figures[j]
			middle, least, most := courses.of(j)
			row := strings.Join([]string{s.name, f.name, f.text(middle), f.text(least) + " to " + f.text(most), f.pass()}, "\t")
			testsupport.True(t, f.held(middle), "%s", row)
			rows[i] += row + "\n"
		}
	})
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "scenario\tfigure\tmedian\tof all courses\tmust be")
	fmt.Fprint(w, strings.Join(rows, ""))
	w.Flush()
	t.Logf("%d courses of each scenario\n%s", *seeds, &text)
}

// Without any of its rules, the sizer is worse in a scenario.
func TestSizerNeedsEachRule(t *testing.T) {
	testsupport.Long(t)
	count := func(k Kind) func(w *world) float64 {
		return func(w *world) (n float64) {
			for _, d := range w.controller.(*bySizer).decisions {
				if d.Kind == k {
					n++
				}
			}
			return n
		}
	}
	for _, c := range []struct {
		rule, scenario string
		without        func(r *rules)
		figure         int
		worse          float64
		measure        func(w *world) float64 // nil: the scenario's figure
		seed           uint64                 // of the first course
		courses        uint64                 // the worst one counts
	}{
		{"the verdict", "c2.", func(r *rules) { r.growth, r.uselessReleases, r.verdictTime = 1e6, math.MaxUint64, math.MaxInt64 }, 1, 1.5, nil, 100, 1},
		{"the bound by the need", "b.", func(r *rules) { r.maxPerNeed = 1000 }, 1, 1.1, nil, 100, 1},
		{"the last 300 ms of a shortage", "j.", func(r *rules) { r.recentTime = r.maxJudged }, 0, 1.1, nil, 100, 4},
		{"longer holds after each failure", "c1.", func(r *rules) { r.pauseGrowth = 1 }, 0, 2, count(Reverted), 100, 1},
		{"free growth of small pools", "g.", func(r *rules) { r.freeBelow = 0 }, 0, 1.2, nil, 100, 1},
		{"more releases for a failure than for a success", "c4.", func(r *rules) { r.uselessReleases = 500 }, 1, 1.2, nil, 106, 1},
		{"peakedness", "b.", func(r *rules) { r.bursts = 0 }, 0, 2, nil, 100, 1},
		{"the rate of two seconds", "a.", func(r *rules) { r.rateTime = r.maxJudged }, 0, 1.3, nil, 100, 1},
		{"the least time of a verdict", "g.", func(r *rules) { r.minSuccessTime = Interval }, 0, 1.5, nil, 115, 1},
		{"the least time of a failure", "g.", func(r *rules) { r.minFailureTime = 0 }, 0, 1.5, nil, 107, 1},
	} {
		s := scenarios[slices.IndexFunc(scenarios, func(s *scenario) bool { return strings.HasPrefix(s.name, c.scenario) })]
		measured := func(r rules) float64 {
			var all []float64
			for i := range c.courses {
				tr := s.traffic
				figures, w := s.run(newSizer(&tr, c.seed+i, r), &tr, c.seed+i)
				if c.measure != nil {
					all = append(all, c.measure(w))
				} else {
					all = append(all, figures[c.figure])
				}
			}
			return slices.Max(all) // the worst course
		}
		changed := standard
		c.without(&changed)
		with, without := measured(standard), measured(changed)
		t.Logf("%s: %.3f with, %.3f without %s", s.name, with, without, c.rule)
		testsupport.True(t, (without/with) >= c.worse, "%s: %.3f with, %.3f without %s", s.name, with, without, c.rule)
	}
}

// replicas are pools of several adbuffers in front of one SSP.
func replicas(n int, t traffic, seed uint64) (all []*world) {
	for i := range n {
		all = append(all, newWorld(t, seed+uint64(i), newSizer(&t, seed+uint64(i), standard)))
	}
	together(all, t.length)
	return all
}

// together simulates pools of one SSP up to a time.
func together(all []*world, length float64) {
	for end := tick; end < length; end += tick {
		total := 0
		for _, w := range all {
			total += w.inService
		}
		for _, w := range all {
			w.others = total - w.inService
			w.until(end)
		}
	}
}

// Eight replicas grow against one SSP that is full. The verdict of each sees the growth of the others.
func TestSizersOfReplicasDoNotGrowAgainstAFullSSP(t *testing.T) {
	testsupport.Long(t)
	const n, capacity = 8, 400
	for seed := range uint64(*seeds) {
		tr := traffic{rate: step(120, 350, 800), most: 800, speed: sharing(constant(capacity)), length: 600, start: places(350, serviceMean, 1), max: 1000}
		all := replicas(n, tr, 100*(seed+1))
		limits, good := 0, 0.0
		for _, w := range all {
			limits += int(w.peak(120, 600))
			good += w.goodput(180, 600)
		}
		best := 0.0
		for _, size := range []int{40, 50, 70} {
			f := tr
			f.start = size
			var worlds []*world
			for i := range n {
				worlds = append(worlds, newWorld(f, seed+uint64(i), fixed(size)))
			}
			together(worlds, 300)
			sum := 0.0
			for _, w := range worlds {
				sum += w.goodput(180, 300)
			}
			best = max(best, sum)
		}
		if *only != "" {
			all[0].controller.(*bySizer).log(t)
		}
		t.Logf("peak %d places for a capacity of %d, goodput %.0f/s of %.0f/s", limits, capacity, good, best)
		testsupport.True(t, limits <= 3*capacity && good >= 0.9*best, "seed %d: peak %d places for a capacity of %d, goodput %.0f/s of %.0f/s", seed, limits, capacity, good, best)
	}
}

func TestSizerOverADay(t *testing.T) {
	testsupport.Long(t)
	rng := newRand(9)
	noise := make([]float64, 86400/10+1)
	for i := range noise {
		noise[i] = 0.85 + 0.3*rng.Float64()
	}
	tr := traffic{most: 300, length: 86400, start: 16, max: 1000, rate: func(t float64) float64 {
		return (120 - 100*math.Cos(2*math.Pi*t/86400)) * noise[int(t/10)]
	}}
	w := newWorld(tr, 1, newSizer(&tr, 1, standard))
	w.run()
	opened := w.sum(0, 86400, func(s *second) int { return s.opened })
	t.Logf("%.2f changes an hour, %.0f connections opened, %.2f %% waited", w.changes()/24, opened, 100*w.waitingShare(0, 86400))
	testsupport.True(t, w.changes() <= 24*2 && w.waitingShare(0, 86400) <= 0.03, "%.0f changes, %.2f %% waited", w.changes(), 100*w.waitingShare(0, 86400))
}
