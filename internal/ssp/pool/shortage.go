package pool

import (
	"time"

	"adbuffer/internal/machine/rates"
)

// shortage spaces the dials of a pool while they fail because adbuffer's machine has no file, port or
// memory for them. No address is to blame, so none backs off. A shortage ends without notice, and requests
// must not fail after its end. So the spaces stay short: a request waits for the next dial, and fails only
// if that dial fails too. Guarded by Pool.mu.
type shortage struct {
	failures int       // dials in a row that failed so; dials that began together count as one
	counted  time.Time // failures before this moment belong to the last one counted
	until    time.Time // no dial starts earlier
}

const (
	// firstShortagePause and maxShortagePause bound the space between two dials.
	firstShortagePause = 10 * time.Millisecond
	maxShortagePause   = 60 * time.Millisecond
	// lastingShortage is the number of failures from which each failed dial fails the requests that
	// wait for it.
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

// dialing records that a dial starts. During a shortage, one dial starts at a time.
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
