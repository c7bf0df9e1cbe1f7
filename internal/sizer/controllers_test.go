//go:build !race

package sizer

import (
	"math"
	"slices"

	"adbuffer/internal/capacity"
)

// bySizer is the sizer of the pools.
type bySizer struct {
	*Sizer
	decisions []Decision
}

func newSizer(w *traffic, seed uint64, r rules) *bySizer {
	rng := newRand(seed)
	c := &bySizer{Sizer: New(Limits{Min: 16, Max: w.max}, w.start, rng.Float64)}
	c.rules = r
	return c
}

func (c *bySizer) decide(w *world, x Sample) int {
	if d, ok := c.Tick(at(w.now), x); ok {
		c.decisions = append(c.decisions, d)
	}
	return c.Limit()
}

// fixed is a size that stays.
type fixed int

func (n fixed) decide(*world, Sample) int { return int(n) }

// oracle knows the load and the SSP.
type oracle func(t float64) int

func (o oracle) decide(w *world, _ Sample) int { return o(w.now) }

// gradient is the gradient controller of Envoy's adaptive concurrency, with its defaults.
type gradient struct {
	limit, minimum float64
	measuring      bool
	before         float64 // the limit before the measurement
	sampled        []float64
	next           float64
}

func (g *gradient) decide(w *world, _ Sample) int {
	const requests, least, most, buffer, interval = 50, 3, 1000, 0.25, 60
	if g.limit == 0 {
		g.limit = float64(w.start)
	}
	if !g.measuring && w.now >= g.next {
		g.measuring, g.before, g.limit, g.sampled = true, g.limit, least, nil
	}
	switch {
	case g.measuring:
		g.sampled = append(g.sampled, w.holds...)
		if len(g.sampled) < requests {
			break
		}
		g.minimum = median(slices.Clone(g.sampled))
		g.measuring, g.limit, g.next = false, g.before, w.now+interval*(1+0.1*w.rng.Float64())
	case len(w.holds) > 0:
		ratio := min(max(g.minimum*(1+buffer)/median(slices.Clone(w.holds)), 0.5), 2)
		limit := g.limit * ratio
		g.limit = min(max(limit+math.Sqrt(limit), least), most)
	}
	return min(int(g.limit), w.max)
}

// aimd grows by a step while requests wait in the queue, and shrinks by a share while none does.
type aimd struct {
	limit    float64
	ticks    int
	arrivals uint64
	waits    uint64
}

func (a *aimd) decide(w *world, x Sample) int {
	if a.limit == 0 {
		a.limit = float64(w.start)
	}
	if a.ticks++; a.ticks%5 == 0 {
		arrived, waited := x.Arrivals-a.arrivals, x.Waits-a.waits
		a.arrivals, a.waits = x.Arrivals, x.Waits
		if arrived > 0 && float64(waited) > 0.03*float64(arrived) {
			a.limit += max(1, math.Sqrt(a.limit))
		} else {
			a.limit *= 0.995
		}
		a.limit = min(max(a.limit, 16), float64(w.max))
	}
	return int(a.limit)
}

// places returns what an oracle gives to a load of so many requests per second and seconds.
func places(rate, hold, peakedness float64) int {
	return int(math.Ceil(peakedness * float64(capacity.Places(rate/peakedness, seconds(hold), capacity.DefaultWaitingShare))))
}
