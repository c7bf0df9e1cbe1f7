//go:build !race

package sizer

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"testing"

	"adbuffer/internal/testsupport"
)

var figuresFile = flag.String("figures", "", "the `file` for the medians of TestSizerOnLiveTraces, in JSON")

// failedShare returns the share of the requests that got no response.
func (w *world) failedShare(from, to float64) float64 {
	return max(0, 1-w.sum(from, to, func(s *second) int { return s.good })/w.sum(from, to, func(s *second) int { return s.arrivals }))
}

// live has the courses of "go run ./loadtest sizing", which runs the same on loopback. The names are the same.
func live() []*scenario {
	const before, capacity = 15, 100
	slow := meanHold(1.5)
	return []*scenario{
		{
			name:    "step: 500 to 2 000/s",
			traffic: func() traffic { return traffic{rate: step(before, 500, 2000), most: 2000, length: 35} },
			figures: []figure{{name: "seconds until in band", most: 10}, {name: "then failed", most: 0.03, percent: true}},
			measure: func(_ *scenario, w *world) []float64 {
				return []float64{w.settled(before, 35, places(2000, serviceMean, 1), 0.15), w.failedShare(25, 35)}
			},
		},
		{
			name: "full: 700 to 1 600/s, and a capacity for 1 100/s",
			traffic: func() traffic {
				return traffic{rate: step(before, 700, 1600), most: 1600, speed: sharing(constant(capacity)), length: 55}
			},
			figures: []figure{{name: "goodput of the capacity", least: 0.8, percent: true}, {name: "peak / capacity", most: 1.85}},
			measure: func(_ *scenario, w *world) []float64 {
				return []float64{w.goodput(25, 55) / (capacity / serviceMean), w.peak(before, 55) / capacity}
			},
		},
		{
			name: "slower: hold × 1.5 for ever",
			traffic: func() traffic {
				return traffic{rate: constant(500), most: 500, service: step(before, 1, 1.5), length: 60}
			},
			figures: []figure{{name: "seconds until in band", most: 30}, {name: "N / need", most: 1.3}},
			measure: func(_ *scenario, w *world) []float64 {
				need := places(500, slow, 1)
				return []float64{w.settled(before, 60, need, 0.15), w.peak(59, 60) / float64(need)}
			},
		},
		{
			name:    "flash: 0 to 4 000/s in 30 s",
			traffic: func() traffic { return traffic{rate: ramp(0, 30, 1, 4000), most: 4000, length: 35} },
			figures: []figure{{name: "failed", most: 0.02, percent: true}, {name: "N / need", most: 1.3}},
			measure: func(_ *scenario, w *world) []float64 {
				return []float64{w.failedShare(0, 35), w.peak(34, 35) / float64(places(4000, serviceMean, 1))}
			},
		},
		{
			name: "outage: all hang for 10 s, with a breaker",
			traffic: func() traffic {
				hangs := func(t float64) float64 { return map[bool]float64{true: 1}[within(before, 25)(t)] }
				return traffic{rate: constant(500), most: 500, hangs: hangs, beside: func() beside { return beside{breaker: new(breaker)} }, length: 45}
			},
			figures: []figure{{name: "N after / before", most: 1.3}, {name: "then failed", most: 0.03, percent: true}},
			measure: func(_ *scenario, w *world) []float64 {
				return []float64{w.peak(44, 45) / w.peak(14, 15), w.failedShare(35, 45)}
			},
		},
	}
}

// The traces are short, so a course may miss a bound; the median must keep it.
func TestSizerOnLiveTraces(t *testing.T) {
	medians := make(map[string]float64)
	for _, s := range live() {
		all := make(results, max(5, *seeds))
		sideBySide(len(all), func(i int) {
			tr := s.traffic()
			tr.start, tr.max = 16, 2000
			all[i], _ = s.run(newSizer(&tr, uint64(i)+100, standard), &tr, uint64(i)+100)
		})
		for j := range s.figures {
			f := &s.figures[j]
			middle, least, most := all.of(j)
			t.Logf("%s: %s %s, %s to %s", s.name, f.name, f.text(middle), f.text(least), f.text(most))
			testsupport.True(t, f.held(middle), "%s: %s is %s, and must be %s", s.name, f.name, f.text(middle), f.pass())
			medians[s.name+": "+f.name] = min(middle, math.MaxFloat32)
		}
	}
	if *figuresFile != "" {
		text, err := json.Marshal(medians)
		if err == nil {
			err = os.WriteFile(*figuresFile, text, 0o600)
		}
		testsupport.True(t, err == nil, "%v", err)
	}
}
