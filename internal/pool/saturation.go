package pool

import "time"

// possibleLocked is how many places the pool could lend at once: those of the
// open connections, and for each that may yet be opened as many as one of the
// protocol last negotiated has (1 while unknown). Of a connection that lends no
// more, what is still in use counts.
func (p *Pool) possibleLocked() int { return p.places + p.roomLocked()*p.perConnLocked() }

// found is the pool as a request finds it (PASTA: Poisson arrivals see time
// averages), which catches the peaks between two scrapes.
type found struct {
	inUse    int // -1: by nobody
	possible int
}

var nobody = found{inUse: -1}

func (p *Pool) foundLocked() found { return found{p.inUse, p.possibleLocked()} }

// arrived counts a request that found the pool so.
func (s *stats) arrived(f found) {
	if f.inUse < 0 {
		return
	}
	s.arrivals.Inc()
	if f.possible > 0 {
		s.atArrival.Observe(int64(f.inUse) * 1000 / int64(f.possible))
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
