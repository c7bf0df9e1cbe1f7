package pool

import (
	"math/rand/v2"
	"time"
)

// addressState records the latest dials to one address, or the latest look-ups. Guarded by Pool.mu.
type addressState struct {
	dialing  int       // dials under way
	failures int       // dials in a row that failed
	doubted  bool      // after the last failure requests waited for a dial at once
	until    time.Time // no dial starts earlier, because dials failed
	useless  int       // connections in a row on which the SSP processed no request
	short    int       // dials in a row that failed because of adbuffer's machine; see ranShort
	spaced   time.Time // no dial starts earlier, because connections were useless, or of short
}

const (
	// unspaced is how many connections in a row may be useless before the pool spaces its dials.
	unspaced = 3
	// firstSpace is the first space between two dials. Each further one is twice as long.
	firstSpace = time.Millisecond
	// firstShort and mostShort bound the space after a dial that failed because of this machine.
	firstShort = 10 * time.Millisecond
	mostShort  = time.Second
	// lastingShort is the number of such dials in a row from which requests do not wait for the next.
	lastingShort = 3
)

// healthy reports whether the pool may dial the address without a limit. A nil state means that the
// address was never dialled.
func (s *addressState) healthy(now time.Time) bool {
	return s == nil || s.failures == 0 && !s.spaced.After(now)
}

// pausedUntil returns the time before which the pool does not dial an unhealthy address.
func (s *addressState) pausedUntil() time.Time {
	if s.spaced.After(s.until) {
		return s.spaced
	}
	return s.until
}

// failed records a failed dial. failures is the value of s.failures when the dial began: dials that
// began together fail together, and count as one failure.
//
// The first failure may be an accident, so no pause follows. If again is true, requests wait for one
// dial more, and the same holds for the first failure after each pause.
func (s *addressState) failed(failures int, again bool, now time.Time, o *Options) {
	if failures != s.failures {
		return
	}
	s.doubted = again && !s.doubted
	if s.doubted && s.failures > 0 {
		return
	}
	if s.failures++; s.failures > 1 {
		// ±20 %, so that several adbuffers do not dial at the same moments; at most BackoffMax.
		s.until = now.Add(jitter(doubled(o.BackoffMin, s.failures-2, o.BackoffMax), 0.2))
	}
}

// ranShort records a dial that failed because of adbuffer's machine: no address is to blame, but the
// next dial would fail too. Dials that began together count as one.
func (s *addressState) ranShort(now time.Time) {
	if s.spaced.After(now) {
		return
	}
	s.spaced = now.Add(jitter(doubled(firstShort, s.short, mostShort), 0.2))
	s.short++
}

// mayServeSoon reports whether requests may wait for the next dial, although none starts now.
func (s *addressState) mayServeSoon() bool { return s.failures == 0 && s.short < lastingShort }

// space sets the time of the next dial if the last connections were useless.
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
