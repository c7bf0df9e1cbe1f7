package pool

import "time"

// load says how many places of a pool are in use.
type load struct {
	inUse    int // places in use
	possible int // places that the pool could offer at once
}

// saturation returns the share of the possible places that is in use, 0 if none is possible.
func (l load) saturation() float64 {
	if l.possible <= 0 {
		return 0
	}
	return float64(l.inUse) / float64(l.possible)
}

// load returns the places in use, and the places that the pool could offer at once: the places of
// open connections, plus perConn for each connection that may still be opened. A draining connection
// counts only its places in use.
func (c *connections) load() load {
	l := load{inUse: c.inUse, possible: c.places}
	if n := c.mayOpen(); n > 0 {
		l.possible += n * c.perConn()
	}
	return l
}

// highWater remembers the highest saturation of each of the last 60 seconds. Guarded by Pool.mu.
type highWater struct {
	second [60]struct {
		at         int64 // Unix time in seconds
		saturation float64
	}
}

func (h *highWater) note(now time.Time, l load) {
	if l.possible <= 0 {
		return
	}
	at := now.Unix()
	s, saturation := &h.second[at%60], l.saturation()
	if s.at != at {
		s.at, s.saturation = at, saturation
	} else if saturation > s.saturation {
		s.saturation = saturation
	}
}

// max returns the highest saturation of the last 60 seconds, or current if that is higher.
func (h *highWater) max(now time.Time, current float64) float64 {
	highest := current
	for i := range h.second {
		if now.Unix()-h.second[i].at < 60 && h.second[i].saturation > highest {
			highest = h.second[i].saturation
		}
	}
	return highest
}
