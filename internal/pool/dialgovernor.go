package pool

import (
	"math/rand/v2"
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

	known  []Address // as of the last look-up
	turn   int       // index of the next in known
	states map[Address]*addressState
	lookup addressState
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

// found takes the addresses of a look-up. States of addresses that are gone are
// forgotten.
func (g *governor) found(addrs []Address) {
	g.lookup.failures = 0
	g.known = addrs
	if len(g.states) <= len(addrs) {
		return
	}
	for a, s := range g.states {
		if s.dialing == 0 && !contains(addrs, a) {
			delete(g.states, a)
		}
	}
}

func contains(addrs []Address, a Address) bool {
	for _, b := range addrs {
		if a == b {
			return true
		}
	}
	return false
}

// ready reports whether a dial may start now, and if not, when the first one
// may. Before the first look-up nothing is known, and it may.
func (g *governor) ready(now time.Time) (ok bool, at time.Time) {
	if g.lookup.failures > 0 && g.lookup.until.After(now) {
		return false, g.lookup.until
	}
	if len(g.known) == 0 {
		return g.lookup.failures == 0 || g.lookup.dialing == 0, now.Add(g.min)
	}
	for _, a := range g.known {
		s := g.states[a]
		switch {
		case s == nil || s.free(now):
			return true, time.Time{}
		case at.IsZero() || s.until.Before(at):
			at = s.until
		}
	}
	return false, at
}

func (s *addressState) free(now time.Time) bool {
	return s.failures == 0 || s.dialing == 0 && !s.until.After(now)
}

// pick takes the next address that may be dialled.
func (g *governor) pick(now time.Time) (Address, bool) {
	for range g.known {
		a := g.known[g.turn%len(g.known)]
		g.turn = (g.turn + 1) % len(g.known)
		s := g.states[a]
		if s == nil {
			s = new(addressState)
			g.states[a] = s
		}
		if s.free(now) {
			s.dialing++
			return a, true
		}
	}
	return Address{}, false
}

// ended notes how a dial to a ended.
func (g *governor) ended(a Address, ok bool, now time.Time) {
	s := g.states[a]
	if s == nil {
		return // looked up anew meanwhile, and gone
	}
	s.dialing--
	s.note(ok, now, g.min, g.max)
}

func (s *addressState) note(ok bool, now time.Time, lo, hi time.Duration) {
	if ok {
		s.failures = 0
		return
	}
	if s.failures > 0 && s.until.After(now) {
		return // dials that started together fail together: that is one failure
	}
	back := hi
	if s.failures < 30 && lo<<s.failures < hi {
		back = lo << s.failures
	}
	s.failures++
	// ±20 %, so that many adbuffers do not come back in step.
	s.until = now.Add(time.Duration(float64(back) * (0.8 + 0.4*rand.Float64())))
}

// allFailing reports whether every address is known to fail and left alone.
func (g *governor) allFailing(now time.Time) bool {
	ok, _ := g.ready(now)
	return !ok
}
