package route

import (
	"math/rand/v2"

	"adbuffer/internal/ssp/ssp"
)

// pick draws a target by weight: a target of weight n is drawn with probability n/s, where s is the sum of the
// weights. If the drawn target is not eligible, or its SSP is disabled, the draw is repeated among the eligible
// targets whose SSPs are enabled. If all eligible targets are disabled, pick returns one of them. It returns nil
// if no target is eligible.
func (rt *Route) pick(r *ssp.Request, legs **legLog) *Target {
	drawn := atWeight(rt.Targets, rt.draw(rt.weights))
	first := drawn
	if !drawn.Eligible(r, true) {
		drawn.skip(legs)
		drawn = nil
	} else if !drawn.SSP.Refusing() {
		return drawn
	}
	var enabled []Target
	sum := 0
	for i := range rt.Targets {
		t := &rt.Targets[i]
		if t == first || t.Weight == 0 || !t.Eligible(r, true) {
			continue
		}
		if drawn == nil {
			drawn = t
		}
		if !t.SSP.Refusing() {
			enabled, sum = append(enabled, *t), sum+t.Weight
		}
	}
	if sum == 0 {
		return drawn
	}
	return atWeight(enabled, rt.draw(sum))
}

// atWeight returns the target that holds the n-th unit of the weights, from 0. It is a linear scan,
// since a route has only a few SSPs.
func atWeight(targets []Target, n int) *Target {
	for i := range targets {
		n -= targets[i].Weight
		if n < 0 {
			return &targets[i]
		}
	}
	panic("BUG: drawn beyond the sum of the weights")
}

// prepareSplit adds the weights up.
func (rt *Route) prepareSplit() {
	rt.draw, rt.weights = rand.IntN, 0
	for i := range rt.Targets {
		rt.weights += rt.Targets[i].Weight
	}
	if rt.weights == 0 {
		panic("BUG: route " + rt.Name + " splits by weight, and has none")
	}
}
