package load

import (
	"math"
	"math/rand/v2"
	"time"
)

// Phase is a part of a run. Its rate changes linearly from From to To.
type Phase struct {
	Name     string
	Duration time.Duration
	From, To float64 // requests a second
	// Unrecorded marks a warm-up, which the summary of the whole run omits.
	Unrecorded bool
}

// Requests returns the number of requests of the phase. With random arrivals it is the mean.
func (p Phase) Requests() float64 { return (p.From + p.To) / 2 * p.Duration.Seconds() }

// arrival is a request that is due, since the start of the first phase.
type arrival struct {
	due   time.Duration
	phase int
	lag   time.Duration // from due until pace saw it
}

// arrivals yields the arrivals of an open loop in order of time, the same ones in each run.
func (p *Plan) arrivals(yield func(arrival) bool) {
	random := rand.New(rand.NewPCG(0, 0))
	var start time.Duration
	for i, phase := range p.Phases {
		// The next arrival comes when the phase expects this number of requests. Steps of 1 give evenly spaced
		// arrivals. Exponentially distributed steps give a Poisson process.
		expected := 0.0
		if p.Poisson {
			expected = random.ExpFloat64()
		}
		for next := phase.when(expected); next < phase.Duration; next = phase.when(expected) {
			if !yield(arrival{due: start + next, phase: i}) {
				return
			}
			if p.Poisson {
				expected += random.ExpFloat64()
			} else {
				expected++
			}
		}
		start += phase.Duration
	}
}

// when returns the time until which the phase expects n requests, since its start. If it never
// expects as many, when returns the largest duration.
func (p *Phase) when(n float64) time.Duration {
	if n == 0 && (p.From > 0 || p.To > 0) {
		return 0
	}
	// n = From·t + slope·t²/2. This form of the solution stays exact if From is much larger than the slope. It is
	// infinite or no number if there is no such t.
	slope := (p.To - p.From) / p.Duration.Seconds()
	t := 2 * n / (p.From + math.Sqrt(p.From*p.From+2*slope*n))
	if math.IsNaN(t) || t > 1e6 {
		return math.MaxInt64
	}
	return time.Duration(t * 1e9)
}
