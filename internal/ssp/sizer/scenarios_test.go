//go:build !race

package sizer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 11)) }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// figure is what a scenario measures, with its bounds for the sizer.
type figure struct {
	name        string
	least, most float64
	percent     bool
	of          func(s *scenario, w *world) float64
}

// scenario is a load, an SSP, and what is measured.
type scenario struct {
	name    string
	traffic traffic
	figures []figure
	once    sync.Once
	fixed   float64 // the goodput of the best fixed size
}

func constant(v float64) func(float64) float64 { return func(float64) float64 { return v } }

func step(at, before, after float64) func(float64) float64 {
	return func(t float64) float64 {
		if t < at {
			return before
		}
		return after
	}
}

func ramp(from, to, before, after float64) func(float64) float64 {
	return func(t float64) float64 {
		return before + (after-before)*min(max((t-from)/(to-from), 0), 1)
	}
}

// meanHold returns the mean hold of a service that takes factor times as usual, up to the deadline.
func meanHold(factor float64) float64 {
	rng := newRand(1)
	sum := 0.0
	const n = 20_000
	for range n {
		sum += min(deadline, factor*math.Exp(serviceMu+serviceSigma*rng.NormFloat64()))
	}
	return sum / n
}

// sum adds a figure of the seconds from one time to another.
func (w *world) sum(from, to float64, f func(*second) int) (n float64) {
	for i := int(from); i < min(int(to), len(w.seconds)); i++ {
		n += float64(f(&w.seconds[i]))
	}
	return n
}

func (w *world) waitingShare(from, to float64) float64 {
	return w.sum(from, to, func(s *second) int { return s.waits }) / max(1, w.sum(from, to, func(s *second) int { return s.arrivals }))
}

func (w *world) goodput(from, to float64) float64 {
	return w.sum(from, to, func(s *second) int { return s.good }) / (to - from)
}

func (w *world) peak(from, to float64) float64 {
	most := 0
	for i := int(from); i < min(int(to), len(w.seconds)); i++ {
		most = max(most, w.seconds[i].limit)
	}
	return float64(most)
}

// settled returns after how many seconds from `from` on the limit stays within a band around want.
func (w *world) settled(from, to float64, want int, band float64) float64 {
	last := from
	for i := int(from); i < min(int(to), len(w.seconds)); i++ {
		if d := math.Abs(float64(w.seconds[i].limit)/float64(want) - 1); d > band {
			last = float64(i + 1)
		}
	}
	if last >= to-1 {
		return math.Inf(1)
	}
	return last - from
}

func (w *world) changes() (n float64) {
	for i := 1; i < len(w.seconds); i++ {
		if w.seconds[i].limit != w.seconds[i-1].limit {
			n++
		}
	}
	return n
}

func (w *world) waitQuantile(q float64) float64 {
	var all []float64
	for i := range w.seconds {
		all = append(all, w.seconds[i].wait...)
	}
	slices.Sort(all)
	return all[int(q*float64(len(all)-1))]
}

// best returns the goodput that the best fixed size has after the third minute.
func (s *scenario) best(w *world) float64 {
	s.once.Do(func() { s.fixed = bestFixed(s.traffic, 1, 180, w.length) })
	return s.fixed
}

// sharing is an SSP that shares its capacity among more requests than it can serve at once.
func sharing(capacity func(t float64) float64) func(t float64, n int) float64 {
	return func(t float64, n int) float64 { return min(1, capacity(t)/float64(max(1, n))) }
}

// bestFixed returns the highest goodput that a fixed size reaches. The goodput rises with the size, and falls from the
// best size on.
func bestFixed(t traffic, seed uint64, from, to float64) (best float64) {
	for n := 53; ; n = n*5/4 + 1 {
		fixedTraffic := t
		fixedTraffic.start = n
		w := newWorld(fixedTraffic, seed, fixed(n))
		w.run()
		goodput := w.goodput(from, to)
		if goodput <= best {
			return best
		}
		best = goodput
	}
}

// The figures of several scenarios. Times are in seconds.

// settles bounds the time after which the limit stays within a band around the need.
func settles(from, to float64, need int, band, most float64) figure {
	return figure{name: "seconds until in band", most: most, of: func(_ *scenario, w *world) float64 { return w.settled(from, to, need, band) }}
}

func waits(name string, from, to, most float64) figure {
	return figure{name: name, most: most, percent: true, of: func(_ *scenario, w *world) float64 { return w.waitingShare(from, to) }}
}

// serves bounds the goodput after the third minute, compared with that of the best fixed size.
func serves(least float64) figure {
	return figure{name: "goodput of the best fixed size", least: least, percent: true, of: func(s *scenario, w *world) float64 { return w.goodput(180, w.length) / s.best(w) }}
}

// peaks bounds the highest limit after the second minute, compared with a number of places; 0 means with
// the limit before.
func peaks(name string, to float64, places int, most float64) figure {
	return figure{name: name, most: most, of: func(_ *scenario, w *world) float64 {
		if places == 0 {
			return w.peak(120, to) / w.peak(110, 120)
		}
		return w.peak(120, to) / float64(places)
	}}
}

// ends bounds the last limit, compared as by peaks.
func ends(name string, places int, most float64) figure {
	return figure{name: name, most: most, of: func(_ *scenario, w *world) float64 {
		if places == 0 {
			return float64(w.limit) / w.peak(110, 120)
		}
		return float64(w.limit) / float64(places)
	}}
}

func changesAnHour(hours float64) figure {
	return figure{name: "changes an hour", most: 2, of: func(_ *scenario, w *world) float64 { return w.changes() / hours }}
}

// need returns the places that a load needs without bursts.
func need(rate float64) int { return places(rate, serviceMean, 1) }

var scenarios = []*scenario{
	{
		name:    "a. 500 to 2 000/s at once",
		traffic: traffic{rate: step(120, 500, 2000), most: 2000, length: 240, start: need(500), max: 2000},
		figures: []figure{settles(120, 240, need(2000), 0.1, 10), waits("then waiting", 180, 240, 0.04)},
	},
	{
		name:    "b. batches, z about 4",
		traffic: traffic{rate: constant(1000), most: 1000, batch: 3, length: 240, start: need(1000), max: 2000},
		figures: []figure{waits("waiting", 120, 240, 0.04), ends("N / need", places(1000, serviceMean, 4), 1.17)},
	},
	{
		name:    "c1. the SSP's capacity halves",
		traffic: traffic{rate: constant(1000), most: 1000, speed: sharing(step(120, 130, 65)), length: 420, start: need(1000), max: 1000},
		figures: []figure{serves(0.9), peaks("peak / before", 420, 0, 1.6)},
	},
	{
		name:    "c2. load grows to 1.5 times the capacity, at once",
		traffic: traffic{rate: step(120, 700, 1600), most: 1600, speed: sharing(constant(100)), length: 420, start: need(700), max: 1000},
		figures: []figure{serves(0.96), peaks("peak / capacity", 420, 100, 1.6)},
	},
	{
		name:    "c4. load grows to 1.5 times the capacity, slowly",
		traffic: traffic{rate: ramp(120, 300, 700, 1600), most: 1600, speed: sharing(constant(100)), length: 600, start: need(700), max: 1000},
		figures: []figure{serves(0.96), peaks("peak / capacity", 600, 100, 1.85)},
	},
	{
		name:    "c5. soft saturation: hold × (1 + n/100)",
		traffic: traffic{rate: step(120, 300, 500), most: 500, speed: func(_ float64, n int) float64 { return 1 / (1 + float64(n)/100) }, length: 420, start: 60, max: 1000},
		figures: []figure{serves(0.85)},
	},
	holdScenario("d. hold 80 to 125 ms from then on", 125.0/80),
	holdScenario("e. hold 80 to 200 ms from then on", 200.0/80),
	{
		name:    "f. 0.2 requests/s for two hours",
		traffic: traffic{rate: constant(0.2), most: 0.2, length: 7200, start: 16, max: 256},
		figures: []figure{changesAnHour(2)},
	},
	{
		name:    "f. hold with 30 % of noise, an hour",
		traffic: traffic{rate: constant(300), most: 300, service: noise(0.3, 3600), length: 3600, start: need(300), max: 1000},
		figures: []figure{changesAnHour(1)},
	},
	{
		name:    "g. 0 to 8 000/s in a minute",
		traffic: traffic{rate: ramp(10, 70, 1, 8000), most: 8000, length: 130, start: 16, max: 2000},
		figures: []figure{
			{name: "p99 wait, ms", most: 20, of: func(_ *scenario, w *world) float64 { return 1000 * w.waitQuantile(0.99) }},
			{name: "refused", most: 0.003, percent: true, of: func(_ *scenario, w *world) float64 {
				return w.sum(0, 130, func(s *second) int { return s.refused }) / w.sum(0, 130, func(s *second) int { return s.arrivals })
			}},
		},
	},
	{
		name:    "h. all requests hang for five minutes",
		traffic: traffic{rate: constant(500), most: 500, hangs: during(120, 420, 1, 0), length: 420 + 1200, start: need(500), max: 1000},
		figures: []figure{ends("N after / before", 0, 1.1)},
	},
	{
		name:    "h. half of the requests hang for five minutes",
		traffic: traffic{rate: constant(500), most: 500, hangs: during(120, 420, 0.5, 0), length: 420, start: need(500), max: 1000},
		figures: []figure{{name: "goodput of the load", least: 0.4, percent: true, of: func(_ *scenario, w *world) float64 { return w.goodput(130, 420) / 500 }}},
	},
	{
		name:    "i. HTTP/2 streams 250 to 10",
		traffic: traffic{rate: constant(1000), most: 1000, limit: func(t float64) int { return int(step(120, 250, 10)(t)) }, length: 240, start: need(1000), max: 2000},
		figures: []figure{waits("waiting", 150, 240, 0.03), {name: "connections", most: 14, of: func(_ *scenario, w *world) float64 { return float64(w.conns()) }}},
	},
	{
		name:    "j. refused clients try three times",
		traffic: traffic{rate: constant(1000), most: 1000, again: 3, length: 180, start: 64, max: 1000},
		figures: []figure{ends("N / need", need(1000), 1.5)},
	},
	{
		name:    "slow dials for a minute while the load doubles",
		traffic: traffic{rate: step(120, 500, 1000), most: 1000, dials: during(120, 180, 0.33, 0.03), length: 300, start: need(500), max: 1000},
		figures: []figure{settles(120, 300, need(1000), 0.1, 60), waits("then waiting", 240, 300, 0.04)},
	},
	{
		name:    "refused dials for a minute while the load doubles",
		traffic: traffic{rate: step(120, 500, 1000), most: 1000, refuses: within(120, 180), length: 300, start: need(500), max: 1000},
		figures: []figure{peaks("peak / need", 300, need(1000), 1.25), waits("then waiting", 240, 300, 0.04)},
	},
	{
		name: "one of three endpoints is lost for a minute",
		traffic: traffic{
			rate: constant(1000), most: 1000, hangs: during(120, 121, 1.0/3, 0), endpoints: 3, lost: within(121, 180), speed: sharing(during(120, 180, 120, 180)),
			length: 300, start: need(1000), max: 1000,
		},
		figures: []figure{ends("N after / before", 0, 1.25), waits("waiting meanwhile", 125, 180, 0.04)},
	},
	{
		name:    "all requests hang for a minute, with a breaker",
		traffic: traffic{rate: constant(500), most: 500, hangs: during(120, 180, 1, 0), beside: breaks, length: 300, start: need(500), max: 1000},
		figures: []figure{
			ends("N after / before", 0, 1.15),
			{name: "then goodput of the load", least: 0.96, percent: true, of: func(_ *scenario, w *world) float64 { return w.goodput(200, 300) / 500 }},
		},
	},
	{
		name:    "500 to 2 000/s at once, with hedges",
		traffic: traffic{rate: step(120, 500, 2000), most: 2000, beside: hedges, length: 240, start: need(500), max: 2000},
		figures: []figure{ends("N / need", need(2000), 1.3), waits("then waiting", 180, 240, 0.04)},
	},
	{
		name:    "load grows to 1.5 times the capacity, with hedges",
		traffic: traffic{rate: step(120, 700, 1600), most: 1600, beside: hedges, speed: sharing(constant(100)), length: 420, start: need(700), max: 1000},
		figures: []figure{serves(0.9), peaks("peak / capacity", 420, 100, 1.85)},
	},
	{
		name:    "load grows to 1.5 times the capacity, hold with 30 % of noise",
		traffic: traffic{rate: step(120, 700, 1600), most: 1600, service: noise(0.3, 420), speed: sharing(constant(100)), length: 420, start: need(700), max: 1000},
		figures: []figure{serves(0.9), peaks("peak / capacity", 420, 100, 3)},
	},
	{
		name:    "500 to 2 000/s at once, pipelined at depth 8",
		traffic: traffic{rate: step(120, 500, 2000), most: 2000, depth: 8, length: 240, start: need(500), max: 2000},
		figures: []figure{ends("N / need without pipelining", need(2000), 2), waits("then waiting", 180, 240, 0.04)},
	},
}

// within reports whether a time is in a span.
func within(from, to float64) func(t float64) bool {
	return func(t float64) bool { return t >= from && t < to }
}

// during returns a function that is one value within a span, and another value outside it.
func during(from, to, then, otherwise float64) func(t float64) float64 {
	return func(t float64) float64 {
		if within(from, to)(t) {
			return then
		}
		return otherwise
	}
}

// The parts that an SSP may have beside its pool.
func hedges() beside { return beside{hedge: &hedge{late: 0.2}} }
func breaks() beside { return beside{breaker: new(breaker)} }

// noise returns a factor that changes each second, by up to share.
func noise(share float64, length int) func(t float64) float64 {
	factors := make([]float64, length+1)
	rng := newRand(3)
	for i := range factors {
		factors[i] = 1 - share + 2*share*rng.Float64()
	}
	return func(t float64) float64 { return factors[int(t)] }
}

func holdScenario(name string, factor float64) *scenario {
	return &scenario{
		name:    name,
		traffic: traffic{rate: constant(500), most: 500, service: step(120, 1, factor), length: 240, start: need(500), max: 1000},
		figures: []figure{settles(120, 240, places(500, meanHold(factor), 1), 0.1, 60)},
	}
}

// run simulates the scenario with a controller.
func (s *scenario) run(c controller, t *traffic, seed uint64) (all []float64, w *world) {
	w = newWorld(*t, seed, c)
	w.run()
	for i := range s.figures {
		all = append(all, s.figures[i].of(s, w))
	}
	return all, w
}

func (f *figure) text(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "never"
	case f.percent:
		return fmt.Sprintf("%.1f %%", 100*v)
	}
	return fmt.Sprintf("%.2f", v)
}

// pass describes the bounds.
func (f *figure) pass() string {
	if f.most > 0 {
		return "≤ " + f.text(f.most)
	}
	return "≥ " + f.text(f.least)
}

func (f *figure) held(v float64) bool {
	if f.most > 0 {
		return v <= f.most
	}
	return v >= f.least
}
