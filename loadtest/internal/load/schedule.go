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
	// BurstSize requests come at the start of the phase and again after each BurstEvery; 0 adds none.
	BurstEvery time.Duration
	BurstSize  int
	// Unrecorded marks a warm-up, which the summary of the whole run omits.
	Unrecorded bool
}

// Requests returns the number of requests of the phase, including bursts. With random arrivals it
// is the mean.
func (p Phase) Requests() float64 {
	n := (p.From + p.To) / 2 * p.Duration.Seconds()
	if p.BurstEvery > 0 && p.Duration > 0 {
		n += float64(p.BurstSize) * math.Ceil(float64(p.Duration)/float64(p.BurstEvery))
	}
	return n
}

// arrival is a request that is due, since the start of the first phase.
type arrival struct {
	due   time.Duration
	phase int
	lag   time.Duration // from due until pace saw it
}

// arrivals yields the arrivals of an open loop in order of time.
func (p *Plan) arrivals(yield func(arrival) bool) {
	random := rand.New(rand.NewPCG(p.Seed, 0))
	var start time.Duration
	for i, phase := range p.Phases {
		// The next arrival comes when the phase expects this number of requests. Steps of 1 give evenly spaced
		// arrivals. Exponentially distributed steps give a Poisson process.
		expected := 0.0
		if p.Poisson {
			expected = random.ExpFloat64()
		}
		var burst time.Duration // time of the next burst, since the start of the phase
		for {
			next := phase.when(expected)
			for ; phase.BurstEvery > 0 && burst <= next && burst < phase.Duration; burst += phase.BurstEvery {
				for range phase.BurstSize {
					if !yield(arrival{due: start + burst, phase: i}) {
						return
					}
				}
			}
			if next >= phase.Duration {
				break
			}
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
