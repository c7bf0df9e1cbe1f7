//go:build !race

package sizer

import (
	"math"
	"testing"

	"adbuffer/internal/machine/capacity"
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

// log prints the decisions.
func (c *bySizer) log(t *testing.T) {
	for _, d := range c.decisions {
		t.Logf("%6.1f s %v %d -> %d, need %d, waiting %.1f %%, used %.0f, goodput %.0f, hold %v", d.At.Sub(epoch).Seconds(), d.Kind, d.From, d.To, d.Need, 100*d.Waiting, d.Used, d.Goodput, d.Hold)
	}
}

// fixed is a size that stays.
type fixed int

func (n fixed) decide(*world, Sample) int { return int(n) }

// places returns how many places a load needs, by its requests per second and its hold.
func places(rate, hold, peakedness float64) int {
	return int(math.Ceil(peakedness * float64(capacity.Places(rate/peakedness, seconds(hold), capacity.DefaultWaitingShare))))
}
