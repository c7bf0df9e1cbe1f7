package pool

import (
	"slices"
	"time"

	"adbuffer/internal/upstream"
)

// governor decides when the next dial starts, and to which address. Guarded by Pool.mu.
//
// Addresses take turns. An address whose last dial failed is on trial: one dial at a time goes to
// it until one succeeds. The first failure may be an accident, so the next dial starts at once.
// After each further failure in a row the address pauses, and the pause doubles each time. So an
// SSP that refuses costs almost nothing, and one dead address of several costs only its own dials.
//
// A failed look-up is treated like an address that failed.
type governor struct {
	opts *Options // the pool's

	// Dials under way, from begin to over.
	dialing   int // dialing <= opts.MaxDials, unless SetOptions lowered MaxDials
	offering  int // those that may become HTTP/2
	onTrial   int // those to an address on trial
	undecided int // those that have not picked their address yet

	known  []Address // of the last look-up; may hold an address several times
	turn   int       // index in known of the next address
	states map[Address]*addressState
	lookup addressState

	lastError *upstream.Error // of the last dial that failed; never nil
	paused    *upstream.Error // for requests that come while every address pauses; never nil
}

// target is the address of a dial, and its state when the dial began.
type target struct {
	addr     Address
	failures int
	onTrial  bool
}

func newGovernor(o *Options) governor {
	return governor{opts: o, states: make(map[Address]*addressState), lastError: errNotNow, paused: errNotNow}
}

// pause says when the next dial may start if it may not start now.
type pause struct {
	until time.Time // zero if dials under way decide it
	alive bool      // an address pauses although the last dial to it succeeded
}

// ready reports whether a dial may start now, and if not, how long the pause is. Before the first
// look-up a dial may start.
func (g *governor) ready(now time.Time) (ok bool, p pause) {
	if g.lookup.failures > 0 && g.lookup.until.After(now) {
		return false, pause{until: g.lookup.until}
	}
	if len(g.known) == 0 {
		return g.lookup.failures == 0 || g.undecided == 0, pause{}
	}
	trials := 0 // dials that may start, each on a trial
	for _, a := range g.known {
		s := g.states[a]
		if s.healthy(now) {
			return true, pause{}
		}
		p.alive = p.alive || s.failures == 0
		switch until := s.pausedUntil(); {
		case s.dialing > 0:
		case !until.After(now):
			trials++
		case p.until.IsZero() || until.Before(p.until):
			p.until = until
		}
	}
	return trials > g.undecided, p
}

// begin counts a new dial.
func (g *governor) begin(offerHTTP2 bool) {
	g.dialing++
	g.undecided++
	if offerHTTP2 {
		g.offering++
	}
}

// lookedUp notes the addresses of a look-up, none if it failed. failures is what lookup.failures
// was when it began. It forgets the states of other addresses.
func (g *governor) lookedUp(addrs []Address, failures int, now time.Time) {
	g.undecided--
	if len(addrs) == 0 {
		g.lookup.failed(failures, now, g.opts)
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

// pick chooses the address of a dial. An address on trial is chosen only if mayTry, or if no other
// address is left.
func (g *governor) pick(now time.Time, mayTry bool) (t target, ok bool) {
	trial := -1 // index of the first address on trial that may be dialled
	for i := range g.known {
		at := (g.turn + i) % len(g.known)
		switch s := g.states[g.known[at]]; {
		case s.healthy(now):
			return g.takeTurn(at), true
		case trial >= 0 || s.dialing > 0 || s.pausedUntil().After(now):
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
	t := target{addr: a, failures: s.failures, onTrial: s.failures > 0}
	if t.onTrial {
		g.onTrial++
	}
	return t
}

// over takes a dial off the counts. The zero target is that of a dial that picked no address.
func (g *governor) over(t target, offeredHTTP2 bool) {
	g.dialing--
	if offeredHTTP2 {
		g.offering--
	}
	if t.onTrial {
		g.onTrial--
	}
	if s := g.states[t.addr]; s != nil {
		s.dialing--
	}
}

// ended notes whether a dial brought a connection that the SSP did not close at once.
func (g *governor) ended(t target, ok bool, now time.Time) {
	switch s := g.states[t.addr]; {
	case s == nil:
	case ok:
		s.failures = 0
		s.space(now, g.opts) // the connection may still be useless
	default:
		s.failed(t.failures, now, g.opts)
	}
}

// failedWith notes the error of a dial.
func (g *governor) failedWith(err error) {
	g.lastError = upstream.AsError(err)
	g.paused = &upstream.Error{Outcome: upstream.ConnectFailed, Progress: upstream.NotSent, Detail: errNotNow.Detail, Err: g.lastError}
	if g.lastError.Outcome == upstream.TLSFailed {
		g.paused.Outcome = upstream.TLSFailed
	}
}

// useless notes that a connection to a ended before the SSP processed a request on it. After
// several in a row dials to a are spaced, more widely each time, until the SSP processes a request.
// Such an SSP is alive, so requests may wait for the next dial.
func (g *governor) useless(a Address, now time.Time) {
	if s := g.states[a]; s != nil {
		s.useless++
		s.space(now, g.opts)
	}
}

// useful notes that the SSP processed a request on a connection to a.
func (g *governor) useful(a Address) {
	if s := g.states[a]; s != nil {
		s.useless, s.spaced = 0, time.Time{}
	}
}

// untried reports whether an address is known whose last dial did not fail.
func (g *governor) untried() bool {
	return g.lookup.failures == 0 && slices.ContainsFunc(g.known, func(a Address) bool {
		s := g.states[a]
		return s == nil || s.failures == 0
	})
}

// failing reports whether the last look-up, or the last dial to an address, failed.
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
