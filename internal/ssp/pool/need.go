package pool

import (
	"time"

	"adbuffer/internal/machine/capacity"
)

// Need is the number of places and connections that the requests of the last minute needed, by
// Little's law. The janitor computes it once a second; requests spend no time on it.
type Need struct {
	// WindowSeconds is the time that Need covers: a minute, or less soon after the start.
	WindowSeconds float64 `json:"window_seconds"`
	// ArrivalsPerSecond is the rate of requests that needed a place, including requests that got
	// none.
	ArrivalsPerSecond float64 `json:"arrivals_per_second"`
	// HoldSeconds is the mean time that released places were in use.
	HoldSeconds float64 `json:"hold_seconds"`
	// Load is the mean number of places in use: rate × hold. It is 0 if no request came, or no
	// place was released yet.
	Load float64 `json:"load"`
	// AdvisedPlaces is the number of places with which capacity.DefaultWaitingShare of the requests
	// wait. It is 0 if Load is 0.
	AdvisedPlaces int `json:"advised_places"`
	// AdvisedConnections is how many connections offer AdvisedPlaces if each is at most half full
	// on average. It is the advised value of max_conns, or of max_http2_conns over HTTP/2.
	AdvisedConnections int `json:"advised_connections"`
	// HeadroomRatio is the share of the possible places that Load leaves free: 1 without load,
	// negative if Load exceeds them.
	HeadroomRatio float64 `json:"headroom_ratio"`
}

// needWindow is how many seconds Need covers.
const needWindow = 60

// sums holds the pool's counters at one moment. The difference of two gives the rates between them.
type sums struct {
	at              time.Time
	arrivals, holds uint64
	held            float64 // seconds
	peak            peak    // of the second before
}

// sums reads the counters. It reads holds first: so a place released in between adds a little too
// much time, and never too little.
func (s *stats) sums(now time.Time) sums {
	return sums{at: now, arrivals: s.arrivals.Load(), holds: s.hold.Count(), held: s.hold.Sum()}
}

// needHistory holds the sums of the last minute, one per second. Guarded by Pool.mu.
type needHistory struct {
	ring [needWindow + 1]sums
	n    int // sums recorded; the last is ring[(n-1) % len(ring)]
	last Need
}

// note adds the sums of this second, and returns the rates since the oldest sums.
func (h *needHistory) note(now sums) (window time.Duration, rate float64, hold time.Duration) {
	h.ring[h.n%len(h.ring)] = now
	h.n++
	oldest := h.ring[0]
	if h.n > len(h.ring) {
		oldest = h.ring[h.n%len(h.ring)]
	}
	window = now.at.Sub(oldest.at)
	if window <= 0 {
		return 0, 0, 0
	}
	rate = float64(now.arrivals-oldest.arrivals) / window.Seconds()
	if holds := now.holds - oldest.holds; holds > 0 {
		hold = time.Duration((now.held - oldest.held) / float64(holds) * float64(time.Second))
	}
	return window, rate, hold
}

// peak returns the peak of the last 60 seconds, without the current one.
func (h *needHistory) peak(now time.Time) (highest peak) {
	for i := range h.ring {
		if s := &h.ring[i]; now.Sub(s.at) < needWindow*time.Second {
			highest = highest.max(s.peak)
		}
	}
	return highest
}

// current returns the need of the janitor's last round, compared with the places that are possible
// now.
func (h *needHistory) current(l load) Need {
	need := h.last
	need.HeadroomRatio = capacity.HeadroomRatio(need.Load, l.possible)
	return need
}
