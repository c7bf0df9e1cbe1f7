package pool

import (
	"math/rand/v2"
	"slices"
	"time"
)

// governor decides where the next dial goes, and when. Addresses take turns;
// one that fails is left alone for a time that doubles with each failure, and
// after that is tried by one dial at a time until one succeeds. So an SSP that
// refuses costs next to nothing, and one dead address of several costs only its
// own dials. All of it is guarded by pool.mu.
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
	failures int       // since the last success
	until    time.Time // left alone until then
	dialing  int
}

func (g *governor) init(lo, hi time.Duration) {
	g.min, g.max = lo, hi
	g.states = make(map[Address]*addressState)
}

// lookedUp takes the addresses of a look-up, none where it failed. States of
// addresses that are gone are forgotten.
func (g *governor) lookedUp(addrs []Address, now time.Time) {
	if len(addrs) == 0 {
		g.lookup.failed(now, g.min, g.max)
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

// ready reports whether a dial may start now. If not, at is when the first one
// may, zero where that depends on dials under way. Before the first look-up
// nothing is known, and it may.
func (g *governor) ready(now time.Time) (ok bool, at time.Time) {
	if g.lookup.failures > 0 && g.lookup.until.After(now) {
		return false, g.lookup.until
	}
	if len(g.known) == 0 {
		return g.lookup.failures == 0 || g.undecided == 0, time.Time{}
	}
	free := 0
	for _, a := range g.known {
		s := g.states[a]
		switch {
		case s == nil || s.failures == 0:
			return true, time.Time{}
		case s.dialing > 0:
		case !s.until.After(now):
			free++
		case at.IsZero() || s.until.Before(at):
			at = s.until
		}
	}
	return free > g.undecided, at
}

// pick takes the next address that may be dialled. onTrial: it failed last
// time; unless mayTry, that is one only where no other is left. ended or
// calledOff must follow.
func (g *governor) pick(now time.Time, mayTry bool) (a Address, onTrial, ok bool) {
	trial := -1 // index of the first that could be tried
	for i := range g.known {
		at := (g.turn + i) % len(g.known)
		switch s := g.states[g.known[at]]; {
		case s == nil || s.failures == 0:
			return g.takeTurn(at), false, true
		case trial >= 0 || s.dialing > 0 || s.until.After(now):
		case mayTry:
			return g.takeTurn(at), true, true
		default:
			trial = at
		}
	}
	if trial >= 0 {
		return g.takeTurn(trial), true, true
	}
	return Address{}, false, false
}

// takeTurn counts a dial to known[at].
func (g *governor) takeTurn(at int) Address {
	a := g.known[at]
	g.turn = (at + 1) % len(g.known)
	s := g.states[a]
	if s == nil {
		s = new(addressState)
		g.states[a] = s
	}
	s.dialing++
	return a
}

// ended notes how a dial to a ended. The zero Address is that of a dial that
// came to none.
func (g *governor) ended(a Address, now time.Time, ok bool) {
	g.calledOff(a)
	switch s := g.states[a]; {
	case s == nil:
	case ok:
		s.failures = 0
	default:
		s.failed(now, g.min, g.max)
	}
}

// calledOff is told of a dial whose end says nothing about a.
func (g *governor) calledOff(a Address) {
	if s := g.states[a]; s != nil {
		s.dialing--
	}
}

// failed is told that connections to a are of no use.
func (g *governor) failed(a Address, now time.Time) {
	if s := g.states[a]; s != nil {
		s.failed(now, g.min, g.max)
	}
}

func (s *addressState) failed(now time.Time, lo, hi time.Duration) {
	if s.failures > 0 && s.until.After(now) {
		return // dials that started together fail together: that is one failure
	}
	back := hi
	if lo < hi>>s.failures {
		back = lo << s.failures
	}
	s.failures++
	// ±20 %, so that many adbuffers do not come back in step; never above hi.
	s.until = now.Add(jitter(min(back, hi/6*5), 0.2))
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
