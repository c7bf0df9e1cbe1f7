package route

import "math/rand/v2"

// pick draws a target by weight: n of a sum of weights s is drawn n/s of the
// time, and weight 0 never. A scan: a route has a handful of SSPs.
func (rt *Route) pick() *Target {
	n := rt.draw(rt.weights)
	for i := range rt.Targets {
		if n -= rt.Targets[i].Weight; n < 0 {
			return &rt.Targets[i]
		}
	}
	panic("BUG: drawn beyond the sum of the weights")
}

// prepareSplit sums the weights up.
func (rt *Route) prepareSplit() {
	rt.draw, rt.weights = rand.IntN, 0
	for i := range rt.Targets {
		rt.weights += rt.Targets[i].Weight
	}
	if rt.weights == 0 {
		panic("BUG: route " + rt.Name + " splits by weight, and has none")
	}
}
