package route

import "math/rand/v2"

// pick draws a target by weight: with weight n and sum s its probability is n/s. It is a linear
// scan, since a route has only a few SSPs.
func (rt *Route) pick() *Target {
	n := rt.draw(rt.weights)
	for i := range rt.Targets {
		if n -= rt.Targets[i].Weight; n < 0 {
			if t := &rt.Targets[i]; t.SSP.Refusing() {
				return rt.pickOther(t)
			}
			return &rt.Targets[i]
		}
	}
	panic("BUG: drawn beyond the sum of the weights")
}

// pickOther draws among the targets whose SSPs are not disabled. If all are disabled, it returns
// drawn.
func (rt *Route) pickOther(drawn *Target) *Target {
	var list []*Target
	sum := 0
	for i := range rt.Targets {
		if t := &rt.Targets[i]; t.Weight > 0 && !t.SSP.Refusing() {
			list = append(list, t)
			sum += t.Weight
		}
	}
	if sum == 0 {
		return drawn
	}
	n := rt.draw(sum)
	for _, t := range list {
		if n -= t.Weight; n < 0 {
			return t
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
