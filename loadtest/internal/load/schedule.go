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

// schedule yields arrivals in order of time.
type schedule struct {
	phases []Phase
	random *rand.Rand // nil: evenly spaced

	index    int           // index of the phase
	start    time.Duration // start of the phase
	expected float64       // expected number of requests between the start of the phase and the next arrival
	next     time.Duration // time of the next arrival outside bursts, since the start of the phase
	burstAt  time.Duration // time of the next burst, since the start of the phase
	burst    int           // remaining requests of that burst
}

// newSchedule returns the arrivals of the plan.
func newSchedule(p *Plan) *schedule {
	s := &schedule{phases: p.Phases, index: -1}
	if p.Poisson {
		s.random = rand.New(rand.NewPCG(p.Seed, 0))
	}
	s.enter(0)
	return s
}

// Next returns the next arrival. ok is false after the last arrival.
func (s *schedule) Next() (a arrival, ok bool) {
	for s.index < len(s.phases) {
		p := &s.phases[s.index]
		if s.burst > 0 && s.burstAt <= s.next && s.burstAt < p.Duration {
			a = arrival{due: s.start + s.burstAt, phase: int32(s.index)}
			s.burst--
			if s.burst == 0 {
				s.burstAt += p.BurstEvery
				s.burst = p.BurstSize
			}
			return a, true
		}
		if s.next < p.Duration {
			a = arrival{due: s.start + s.next, phase: int32(s.index)}
			s.step()
			return a, true
		}
		s.enter(s.index + 1)
	}
	return arrival{}, false
}

func (s *schedule) enter(index int) {
	if s.index >= 0 {
		s.start += s.phases[s.index].Duration
	}
	s.index = index
	if index >= len(s.phases) {
		return
	}
	s.expected, s.burstAt = 0, 0
	s.burst = s.phases[index].BurstSize
	if s.phases[index].BurstEvery == 0 {
		s.burst = 0
	}
	if s.random != nil {
		s.step()
		return
	}
	s.next = s.phases[index].when(0)
}

// step computes the time of the next arrival: the moment until which the phase expects a given
// number of requests. A step of 1 in that number gives evenly spaced arrivals. Exponentially
// distributed steps give a Poisson process.
func (s *schedule) step() {
	gap := 1.0
	if s.random != nil {
		gap = s.random.ExpFloat64()
	}
	s.expected += gap
	s.next = s.phases[s.index].when(s.expected)
}

// when returns the time until which the phase expects n requests, since its start. If it never
// expects as many, when returns the largest duration.
func (p *Phase) when(n float64) time.Duration {
	const never = time.Duration(math.MaxInt64)
	// n = From·t + slope·t²/2
	slope := (p.To - p.From) / p.Duration.Seconds()
	var t float64
	switch {
	case p.From <= 0 && p.To <= 0:
		return never
	case n == 0:
		return 0
	case math.Abs(slope) < 1e-9:
		if p.From <= 0 {
			return never
		}
		t = n / p.From
	default:
		d := p.From*p.From + 2*slope*n
		if d < 0 {
			return never
		}
		// This form of the solution stays exact if From is much larger than the slope.
		t = 2 * n / (p.From + math.Sqrt(d))
	}
	if t > 1e6 {
		return never
	}
	return time.Duration(t * 1e9)
}
