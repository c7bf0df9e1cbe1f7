package load

import (
	"math"
	"math/rand/v2"
	"time"
)

// Phase is a stretch of time with a rate of its own, which goes from From to To
// in a straight line.
type Phase struct {
	Name     string
	Duration time.Duration
	From, To float64 // requests a second
	// BurstEvery and BurstSize add that many requests at once, the first at the
	// phase's start; 0 adds none.
	BurstEvery time.Duration
	BurstSize  int
	// Unrecorded phases warm up: their responses are in no result.
	Unrecorded bool
}

// Requests returns how many requests the phase asks for, bursts included; with
// random arrivals it is their mean.
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
	part   int // 0 <= part < parts
	parts  int
	random *rand.Rand // nil: evenly spaced

	index    int           // of the phase
	start    time.Duration // of the phase
	expected float64       // requests expected since the phase's start, at the next one
	next     time.Duration // since the phase's start; of the next one that is no burst's
	burstAt  time.Duration // since the phase's start; of the next burst
	burst    int           // left of the burst that is due at burstAt
}

// newSchedule returns a part of the plan's arrivals. All parts together are the whole.
func newSchedule(p *Plan, part, parts int) *schedule {
	s := &schedule{phases: p.Phases, part: part, parts: parts, index: -1}
	if p.Poisson {
		s.random = rand.New(rand.NewPCG(p.Seed, uint64(part)))
	}
	s.enter(0)
	return s
}

// Next returns the next arrival; ok is false after the last.
func (s *schedule) Next() (a arrival, ok bool) {
	for s.index < len(s.phases) {
		p := &s.phases[s.index]
		if s.burst > 0 && s.burstAt <= s.next && s.burstAt < p.Duration {
			a = arrival{s.start + s.burstAt, int32(s.index)}
			if s.burst--; s.burst == 0 {
				s.burstAt += p.BurstEvery
				s.burst = share(p.BurstSize, s.part, s.parts)
			}
			return a, true
		}
		if s.next < p.Duration {
			a = arrival{s.start + s.next, int32(s.index)}
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
	s.burst = share(s.phases[index].BurstSize, s.part, s.parts)
	if s.phases[index].BurstEvery == 0 {
		s.burst = 0
	}
	if s.random != nil {
		s.step()
		return
	}
	// Evenly spaced: the parts take turns.
	s.expected = float64(s.part) / float64(s.parts)
	s.next = s.phases[index].when(s.expected * float64(s.parts))
}

// step moves to the next arrival. The time until which n requests are expected
// is found from n. If n rises by 1 they are evenly spaced along the rate. If n
// rises by exponential draws they are a Poisson process of that rate.
func (s *schedule) step() {
	gap := 1.0
	if s.random != nil {
		gap = s.random.ExpFloat64()
	}
	s.expected += gap
	s.next = s.phases[s.index].when(s.expected * float64(s.parts))
}

// when returns the time since the phase's start at which n requests are
// expected to have come, and the largest duration if they never do.
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
		// The form that does not cancel where From is much larger than the slope.
		t = 2 * n / (p.From + math.Sqrt(d))
	}
	if t > 1e6 {
		return never
	}
	return time.Duration(t * 1e9)
}
