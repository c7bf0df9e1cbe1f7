package pool

import (
	"time"

	"adbuffer/internal/capacity"
	"adbuffer/internal/upstream"
)

// Need is what the requests of the last minute asked of the pool, by Little's
// law. The janitor works it out once a second; requests do nothing for it.
type Need struct {
	// WindowSeconds is what it looks back on: a minute, less after the start.
	WindowSeconds float64 `json:"window_seconds"`
	// ArrivalsPerSecond are requests that asked for a place, those that were
	// refused one included.
	ArrivalsPerSecond float64 `json:"arrivals_per_second"`
	// HoldSeconds is how long a place was held, the mean over those given back.
	HoldSeconds float64 `json:"hold_seconds"`
	// Load is how many places that keeps busy on average: rate × hold. 0 where
	// nothing came, or no place was given back yet.
	Load float64 `json:"load"`
	// AdvisedPlaces lets capacity.DefaultWaitingShare of the requests wait for a
	// place. 0 where Load is.
	AdvisedPlaces int `json:"advised_places"`
	// AdvisedConnections carry AdvisedPlaces: what max_conns should be, or
	// max_http2_conns where HTTP/2 is spoken; there, no connection is more than
	// half full on average.
	AdvisedConnections int `json:"advised_connections"`
	// HeadroomRatio is the share of the possible places that Load leaves free: 1
	// without any, negative where more is asked than there can be.
	HeadroomRatio float64 `json:"headroom_ratio"`
}

// needWindow is how many seconds Need looks back on.
const needWindow = 60

// tally are the sums at one moment; the difference of two gives the rates
// between them.
type tally struct {
	at              time.Time
	arrivals, holds uint64
	held            float64 // seconds
}

// needs remembers a minute of tallies, second by second. Guarded by pool.mu.
type needs struct {
	ring [needWindow + 1]tally
	n    int // tallies taken; the last is ring[(n-1) % len(ring)]
	last Need
}

// note takes the tally of this second, and works the need out from the oldest.
func (n *needs) note(now tally) (window time.Duration, rate float64, hold time.Duration) {
	n.ring[n.n%len(n.ring)] = now
	n.n++
	oldest := n.ring[0]
	if n.n > len(n.ring) {
		oldest = n.ring[n.n%len(n.ring)]
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

// tally reads the sums. Holds come first: a place that is given back in between
// is then counted with a little too much time rather than with none.
func (p *Pool) tally(now time.Time) tally {
	return tally{at: now, arrivals: p.stats.arrivals.Load(), holds: p.stats.hold.Count(), held: p.stats.hold.Sum()}
}

// reckon is the janitor's part in Need.
func (p *Pool) reckon(now time.Time) {
	t := p.tally(now)
	p.mu.Lock()
	window, rate, hold := p.needs.note(t)
	protocol, perConn := p.nextLocked(), p.perConnLocked()
	p.mu.Unlock()

	// Erlang C takes its time (microseconds for hundreds of places): not under
	// the lock.
	need := Need{WindowSeconds: window.Seconds(), ArrivalsPerSecond: rate, HoldSeconds: hold.Seconds(), Load: capacity.Load(rate, hold)}
	need.AdvisedPlaces = capacity.Places(rate, hold, capacity.DefaultWaitingShare)
	switch protocol {
	case upstream.HTTP2:
		need.AdvisedConnections = capacity.HTTP2GrownConns(need.AdvisedPlaces, perConn)
	default:
		need.AdvisedConnections = capacity.HTTP2Conns(need.AdvisedPlaces, perConn)
	}
	p.mu.Lock()
	p.needs.last = need
	p.mu.Unlock()
}

// needLocked is the need as of the janitor's last round, against what is
// possible now.
func (p *Pool) needLocked() Need {
	need := p.needs.last
	need.HeadroomRatio = capacity.HeadroomRatio(need.Load, p.possibleLocked())
	return need
}
