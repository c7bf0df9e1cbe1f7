package ssp

import (
	"time"

	"adbuffer/internal/upstream"
)

// Refused counts a leg that its caller kept from the SSP: over a limit that is
// not the SSP's own, or no longer wanted before it had begun.
func (s *SSP) Refused(o upstream.Outcome) {
	now := time.Now()
	s.stats.ended(o, now, &upstream.Times{Done: now})
}
