//go:build !race

package sizer

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"testing"

	"adbuffer/internal/test/testsupport"
)

var figuresFile = flag.String("figures", "", "the `file` for the medians of TestSizerOnLiveTraces, in JSON")

// failedShare returns the share of the requests that got no response.
func (w *world) failedShare(from, to float64) float64 {
	return max(0, 1-w.sum(from, to, func(s *second) int { return s.good })/w.sum(from, to, func(s *second) int { return s.arrivals }))
}

func fails(name string, from, to, most float64) figure {
	return figure{name: name, most: most, percent: true, of: func(_ *scenario, w *world) float64 { return w.failedShare(from, to) }}
}

// reaches bounds the limit at the end of the trace, compared with a number of places.
func reaches(need int) figure {
	return figure{name: "N / need", most: 1.3, of: func(_ *scenario, w *world) float64 { return w.peak(w.length-1, w.length) / float64(need) }}
}

// live has the courses of "go run ./loadtest sizing", which runs courses of the same names on loopback.
func live() []*scenario {
	const before, capacity = 15, 100
	slow := places(500, meanHold(1.5), 1)
	return []*scenario{
		{
			name:    "step: 500 to 2 000/s",
			traffic: traffic{rate: step(before, 500, 2000), most: 2000, length: 35},
			figures: []figure{settles(before, 35, need(2000), 0.15, 10), fails("then failed", 25, 35, 0.03)},
		},
		{
			name:    "full: 700 to 1 600/s, and a capacity for 1 100/s",
			traffic: traffic{rate: step(before, 700, 1600), most: 1600, speed: sharing(constant(capacity)), length: 55},
			figures: []figure{
				{name: "goodput of the capacity", least: 0.8, percent: true, of: func(_ *scenario, w *world) float64 { return w.goodput(25, 55) / (capacity / serviceMean) }},
				{name: "peak / capacity", most: 1.85, of: func(_ *scenario, w *world) float64 { return w.peak(before, 55) / capacity }},
			},
		},
		{
			name:    "slower: hold × 1.5 for ever",
			traffic: traffic{rate: constant(500), most: 500, service: step(before, 1, 1.5), length: 60},
			figures: []figure{settles(before, 60, slow, 0.15, 30), reaches(slow)},
		},
		{
			name:    "flash: 0 to 4 000/s in 30 s",
			traffic: traffic{rate: ramp(0, 30, 1, 4000), most: 4000, length: 35},
			figures: []figure{fails("failed", 0, 35, 0.02), reaches(need(4000))},
		},
		{
			name:    "outage: all hang for 10 s, with a breaker",
			traffic: traffic{rate: constant(500), most: 500, hangs: during(before, 25, 1, 0), beside: breaks, length: 45},
			figures: []figure{
				{name: "N after / before", most: 1.3, of: func(_ *scenario, w *world) float64 { return w.peak(44, 45) / w.peak(14, 15) }},
				fails("then failed", 35, 45, 0.03),
			},
		},
	}
}

// The traces are short, so a course may miss a bound; the median must keep it.
func TestSizerOnLiveTraces(t *testing.T) {
	testsupport.Long(t)
	medians := make(map[string]float64)
	for _, s := range live() {
		all := make(results, max(5, *seeds))
		sideBySide(len(all), func(i int) {
			tr := s.traffic
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
