package pool

import (
	"time"

	"adbuffer/internal/machine/rates"
)

// shortage spaces the dials of a pool while they fail because adbuffer's machine has no file, port or
// memory for them. No address is to blame, so none backs off. Nothing tells when a shortage ends, and requests
// must not fail after its end. So the spaces stay short, and a request waits for the next dial. A failed dial
// fails the requests that wait for it only once the shortage lasts. Guarded by Pool.mu.
type shortage struct {
	failures int       // dials and look-ups that failed so since a dial succeeded or failed otherwise
	counted  time.Time // a failure before this moment does not count: its dial began before the last one that did
	until    time.Time // no dial starts earlier, except for a probe, or to a new endpoint or address
}

const (
	// firstShortagePause is the first space between two dials, on average. Each further one is twice as long, but
	// at most maxShortagePause.
	firstShortagePause = 10 * time.Millisecond
	maxShortagePause   = 60 * time.Millisecond
	// lastingShortage is the number of failures from which each failed dial fails the requests that
	// wait for it, if no connection takes requests and no other dial is under way.
	lastingShortage = 3
)

// countFailure records a dial or a look-up that failed because of adbuffer's machine.
func (s *shortage) countFailure(now time.Time) {
	if now.Before(s.counted) {
		return
	}
	s.failures++
	s.until = now.Add(s.pause())
	s.counted = s.until
}

// dialing records that a dial starts. During a shortage, the next one starts after a pause.
func (s *shortage) dialing(now time.Time) {
	if s.failures > 0 {
		s.until = now.Add(s.pause())
	}
}

// pause returns the current space between dials, varied by a fifth.
func (s *shortage) pause() time.Duration {
	return rates.Jitter(doubled(firstShortagePause, s.failures-1, maxShortagePause), 0.2)
}

// lasts reports whether the next dial will likely fail too.
func (s *shortage) lasts() bool { return s.failures >= lastingShortage }
