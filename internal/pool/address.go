package pool

import (
	"math/rand/v2"
	"time"
)

// addressState is what dials to an address came to lately. Guarded by Pool.mu.
type addressState struct {
	dialing  int       // dials under way
	failures int       // dials in a row that failed
	until    time.Time // no dial before, because of failures
	useless  int       // connections in a row on which the SSP processed no request
	spaced   time.Time // no dial before, because of useless
}

const (
	// unspaced is how many connections in a row may be useless before dials are spaced.
	unspaced = 3
	// firstSpace is the first space between two dials. It doubles each time.
	firstSpace = time.Millisecond
)

// healthy reports whether any number of dials may go to the address. nil is an address that was
// never dialled.
func (s *addressState) healthy(now time.Time) bool {
	return s == nil || s.failures == 0 && !s.spaced.After(now)
}

// pausedUntil returns the time before which no dial goes to the address, which is not healthy.
func (s *addressState) pausedUntil() time.Time {
	if s.spaced.After(s.until) {
		return s.spaced
	}
	return s.until
}

// failed notes a failed dial. failures is what s.failures was when the dial began: dials that began
// together fail together, and count as one failure.
func (s *addressState) failed(failures int, now time.Time, o *Options) {
	if failures != s.failures {
		return
	}
	if s.failures++; s.failures > 1 {
		// ±20 %, so that many adbuffers do not dial in step; never above BackoffMax.
		s.until = now.Add(jitter(doubled(o.BackoffMin, s.failures-2, o.BackoffMax), 0.2))
	}
}

// space sets the time before the next dial, if the last connections were useless.
func (s *addressState) space(now time.Time, o *Options) {
	if n := s.useless - unspaced; n >= 0 {
		s.spaced = now.Add(jitter(doubled(firstSpace, n, o.BackoffMax), 0.2))
	}
}

// doubled returns lo doubled n times, but at most 5/6 of hi, so that jitter does not raise it above
// hi.
func doubled(lo time.Duration, n int, hi time.Duration) time.Duration {
	if lo < hi>>n {
		return min(lo<<n, hi/6*5)
	}
	return hi / 6 * 5
}

// jitter returns d, plus or minus up to share of it.
func jitter(d time.Duration, share float64) time.Duration {
	return time.Duration(float64(d) * (1 - share + 2*share*rand.Float64()))
}
