package pool

import (
	"math/rand/v2"
	"slices"
	"time"
)

// governor decides where the next dial goes, and when. Addresses take turns. An
// address that failed is tried by one dial at a time until one succeeds: at once
// after its first failure, which may be an accident, and after each further
// failure in a row only when a pause has passed. The pause doubles each time. So
// an SSP that refuses costs next to nothing, and one dead address of several
// costs only its own dials. All of it is guarded by pool.mu.
//
// A look-up that fails is treated as an address that fails.
type governor struct {
	min, max time.Duration

	known     []Address // as of the last look-up; may name one several times
	turn      int       // index of the next in known
	states    map[Address]*addressState
	lookup    addressState
	undecided int // dials started that have not picked their address yet
}

// addressState is an address's recent past.
type addressState struct {
	failures int       // dials in a row that failed
	until    time.Time // left alone until then, since they failed
	wasted   int       // connections in a row that were of no use; see wastedOn
	spaced   time.Time // left alone until then, since they were of no use
	dialing  int
}

// target is where a dial goes, and what it knew when it began.
type target struct {
	addr     Address
	failures int // of the address
	onTrial  bool
}

func (g *governor) init(lo, hi time.Duration) {
	g.min, g.max = lo, hi
	g.states = make(map[Address]*addressState)
}

// lookedUp takes the addresses of a look-up, none where it failed. failures is
// what lookup.failures was when it began. States of addresses that are gone are
// forgotten.
func (g *governor) lookedUp(addrs []Address, failures int, now time.Time) {
	if len(addrs) == 0 {
		g.lookup.failed(failures, now, g.min, g.max)
		return
	}
	g.lookup.failures = 0
	g.known = addrs
	if len(g.states) <= len(addrs) {
		return
	}
	for a, s := range g.states {
		if s.dialing == 0 && !slices.Contains(addrs, a) {
			delete(g.states, a)
		}
	}
}

// pause says when the first dial may start that may not start now.
type pause struct {
	at    time.Time // zero where that depends on dials under way
	alive bool      // an address is left alone although dials to it succeed
}

// ready reports whether a dial may start now, and if not, what the pause is.
// Before the first look-up nothing is known, and it may.
func (g *governor) ready(now time.Time) (ok bool, until pause) {
	if g.lookup.failures > 0 && g.lookup.until.After(now) {
		return false, pause{at: g.lookup.until}
	}
	if len(g.known) == 0 {
		return g.lookup.failures == 0 || g.undecided == 0, pause{}
	}
	free := 0
	for _, a := range g.known {
		s := g.states[a]
		if s.fresh(now) {
			return true, pause{}
		}
		until.alive = until.alive || s.failures == 0
		switch at := s.leftAlone(); {
		case s.dialing > 0:
		case !at.After(now):
			free++
		case until.at.IsZero() || at.Before(until.at):
			until.at = at
		}
	}
	return free > g.undecided, until
}

// fresh reports whether nothing speaks against dials to the address.
func (s *addressState) fresh(now time.Time) bool {
	return s == nil || s.failures == 0 && !s.spaced.After(now)
}

// leftAlone returns until when no dial goes to the address, which is not fresh.
func (s *addressState) leftAlone() time.Time {
	if s.spaced.After(s.until) {
		return s.spaced
	}
	return s.until
}

// untried reports whether an address is known that did not fail last time.
func (g *governor) untried() bool {
	return g.lookup.failures == 0 && slices.ContainsFunc(g.known, func(a Address) bool {
		s := g.states[a]
		return s == nil || s.failures == 0
	})
}

// pick takes the next address that may be dialled. Unless mayTry, one that failed
// last time (onTrial) is taken only where no other is left. ended or calledOff
// must follow.
func (g *governor) pick(now time.Time, mayTry bool) (t target, ok bool) {
	trial := -1 // index of the first that could be tried
	for i := range g.known {
		at := (g.turn + i) % len(g.known)
		switch s := g.states[g.known[at]]; {
		case s.fresh(now):
			return g.takeTurn(at), true
		case trial >= 0 || s.dialing > 0 || s.leftAlone().After(now):
		case mayTry:
			return g.takeTurn(at), true
		default:
			trial = at
		}
	}
	if trial >= 0 {
		return g.takeTurn(trial), true
	}
	return target{}, false
}

// takeTurn counts a dial to known[at].
func (g *governor) takeTurn(at int) target {
	a := g.known[at]
	g.turn = (at + 1) % len(g.known)
	s := g.states[a]
	if s == nil {
		s = new(addressState)
		g.states[a] = s
	}
	s.dialing++
	return target{addr: a, failures: s.failures, onTrial: s.failures > 0}
}

// ended notes how a dial ended. The zero target is that of a dial that came to no
// address.
func (g *governor) ended(t target, now time.Time, ok bool) {
	g.calledOff(t)
	switch s := g.states[t.addr]; {
	case s == nil:
	case ok:
		s.failures = 0
		s.space(now, g.max) // the connection is still to be of use
	default:
		s.failed(t.failures, now, g.min, g.max)
	}
}

// calledOff is told of a dial whose end says nothing about its address.
func (g *governor) calledOff(t target) {
	if s := g.states[t.addr]; s != nil {
		s.dialing--
	}
}

// wastedOn is told of a connection to a that was opened, and ended before the SSP
// processed a request on it. After several in a row dials to a are spaced, ever
// more widely, until the SSP processes a request. Such an SSP is alive, so
// requests may wait for the next dial.
func (g *governor) wastedOn(a Address, now time.Time) {
	if s := g.states[a]; s != nil {
		s.wasted++
		s.space(now, g.max)
	}
}

// workedOn is told that the SSP has processed a request on a connection to a.
func (g *governor) workedOn(a Address) {
	if s := g.states[a]; s != nil {
		s.wasted, s.spaced = 0, time.Time{}
	}
}

const (
	// unspaced is how many connections in a row may be of no use before dials are
	// spaced.
	unspaced = 3
	// firstSpace is the first space between two dials. It doubles each time.
	firstSpace = time.Millisecond
)

func (s *addressState) space(now time.Time, hi time.Duration) {
	if n := s.wasted - unspaced; n >= 0 {
		s.spaced = now.Add(jitter(doubled(firstSpace, n, hi), 0.2))
	}
}

// failed notes a failed dial. failures is what s.failures was when it began: dials
// that began together fail together, and that is one failure.
func (s *addressState) failed(failures int, now time.Time, lo, hi time.Duration) {
	if failures != s.failures {
		return
	}
	if s.failures++; s.failures > 1 {
		// ±20 %, so that many adbuffers do not come back in step; never above hi.
		s.until = now.Add(jitter(doubled(lo, s.failures-2, hi), 0.2))
	}
}

// doubled returns lo doubled n times, and so much less than hi that jitter brings
// it no further.
func doubled(lo time.Duration, n int, hi time.Duration) time.Duration {
	if lo < hi>>n {
		return min(lo<<n, hi/6*5)
	}
	return hi / 6 * 5
}

// failing reports whether something failed, and has not succeeded since.
func (g *governor) failing() bool {
	if g.lookup.failures > 0 {
		return true
	}
	for _, s := range g.states {
		if s.failures > 0 {
			return true
		}
	}
	return false
}

// jitter returns d, give or take share of it.
func jitter(d time.Duration, share float64) time.Duration {
	return time.Duration(float64(d) * (1 - share + 2*share*rand.Float64()))
}
