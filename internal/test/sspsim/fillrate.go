package sspsim

import (
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
)

// FillRate returns the rate at which an SSP with Response.FillBy fills requests with these values, coarse to fine. It
// follows from a hash of the values, so that a generator of requests knows it too. One combination of values in ten has
// a rate of 5 to 40 %, and which ones do depends on the coarse values too. The rates of the others are distributed
// log-normally around 0.1 %.
func FillRate(values ...string) float64 {
	const (
		inherited = 0.7   // weight of a coarse value, compared with that of the whole combination
		topTenth  = 1.282 // standard deviations that one in ten exceeds
	)
	prefix := fnv.New64a()
	var random *rand.Rand
	tilt, variance := 0.0, 1.0
	for i, v := range values {
		_, _ = io.WriteString(prefix, v+"\x00") // a hash takes everything
		random = rand.New(rand.NewPCG(prefix.Sum64(), 0))
		if i < len(values)-1 {
			tilt += inherited * random.NormFloat64()
			variance += inherited * inherited
		}
	}
	if tilt+random.NormFloat64() > topTenth*math.Sqrt(variance) {
		return 0.05 * math.Pow(8, random.Float64())
	}
	return min(0.049, 0.001*math.Exp(1.5*random.NormFloat64()))
}

// fillRate returns the FillRate of the request's values of these query parameters.
func (r *Request) fillRate(parameters []string) float64 {
	values := make([]string, len(parameters))
	for i, name := range parameters {
		values[i] = r.query(name)
	}
	return FillRate(values...)
}
