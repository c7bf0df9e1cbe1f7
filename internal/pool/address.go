package pool

import (
	"math/rand/v2"
	"slices"
	"time"

	"adbuffer/internal/upstream"
)

// addressState records the latest dials to one address, or the latest look-ups. Guarded by Pool.mu.
type addressState struct {
	dialing  int       // dials under way
	failures int       // dials in a row that failed
	until    time.Time // no dial starts earlier, because dials failed
	useless  int       // connections in a row on which the SSP processed no request
	spaced   time.Time // no dial starts earlier, because connections were useless
}

const (
	// unspaced is how many connections in a row may be useless before the pool spaces its dials.
	unspaced = 3
	// firstSpace is the first space between two dials. Each further one is twice as long.
	firstSpace = time.Millisecond
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
func (s *addressState) failed(failures int, now time.Time, o *Options) {
	if failures != s.failures {
		return
	}
	if s.failures++; s.failures > 1 {
		// ±20 %, so that several adbuffers do not dial at the same moments; at most BackoffMax.
		s.until = now.Add(jitter(doubled(o.BackoffMin, s.failures-2, o.BackoffMax), 0.2))
	}
}

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

// target is the address of a dial, and its state when the dial began.
type target struct {
	addr     upstream.Address
	endpoint *endpoint
	failures int
	onTrial  bool
	others   []upstream.Address // the dial tries these if addr fails or is slow
}

// nth returns the n-th address of the dial; 0 is the first.
func (t target) nth(n int) target {
	if n == 0 {
		return t
	}
	return target{addr: t.others[n-1], endpoint: t.endpoint}
}

// maxOthers bounds how many addresses a dial tries after its first one.
const maxOthers = 3

// othersOf returns the addresses that a dial may try if e.addrs[at] fails or is slow. They
// alternate between the other family and the same one, and their last dial did not fail. So a
// failing address gets no more dials than the governor allows.
func (g *governor) othersOf(e *endpoint, at int) (others []upstream.Address) {
	last := e.addrs[at]
	for len(others) < maxOthers {
		other, same := -1, -1 // next index of the other family, and of the same family
		for i := len(e.addrs) - 1; i > 0; i-- {
			n := (at + i) % len(e.addrs)
			a := e.addrs[n]
			switch s := g.states[a]; {
			case s != nil && s.failures > 0, a == e.addrs[at], slices.Contains(others, a):
			case a.AddrPort.Addr().Is4() == last.AddrPort.Addr().Is4():
				same = n
			default:
				other = n
			}
		}
		if other < 0 {
			other = same
		}
		if other < 0 {
			break
		}
		last = e.addrs[other]
		others = append(others, last)
	}
	return others
}
