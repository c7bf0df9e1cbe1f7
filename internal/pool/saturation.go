package pool

import "time"

// possibleLocked is how many places the pool could lend at once: those of the
// open connections, and for each that may yet be opened as many as one of the
// protocol last negotiated has (1 while unknown). Of a connection that lends no
// more, what is still in use counts.
func (p *Pool) possibleLocked() int { return p.places + p.roomLocked()*p.perConnLocked() }

// arrivedLocked observes the pool as a request finds it (PASTA: Poisson
// arrivals see time averages), which catches the peaks between two scrapes.
func (p *Pool) arrivedLocked(now time.Time) {
	p.stats.arrivals.Add(1)
	if possible := p.possibleLocked(); possible > 0 {
		p.stats.atArrival.Observe(int64(p.inUse) * 1000 / int64(possible))
	}
}

// highWater remembers the highest saturation of the last 60 seconds, second by
// second. Reading it changes nothing. Guarded by pool.mu.
type highWater struct {
	second [60]struct {
		at    int64 // since epoch, in seconds
		ratio float64
	}
}

func (h *highWater) note(now time.Time, inUse, possible int) {
	if possible <= 0 {
		return
	}
	at := now.Unix()
	s := &h.second[at%60]
	ratio := float64(inUse) / float64(possible)
	if s.at != at {
		s.at, s.ratio = at, ratio
	} else if ratio > s.ratio {
		s.ratio = ratio
	}
}

func (h *highWater) max(now time.Time, current float64) float64 {
	highest := current
	for i := range h.second {
		if now.Unix()-h.second[i].at < 60 && h.second[i].ratio > highest {
			highest = h.second[i].ratio
		}
	}
	return highest
}
