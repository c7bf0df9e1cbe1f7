package pool

import (
	"iter"
	"slices"
	"time"

	"adbuffer/internal/wire/exchange"
)

// governor decides when the next dial starts, and to which address. Guarded by Pool.mu.
//
// A dial for a waiting request goes to the endpoint whose turn it is, any other dial to the endpoint
// with the fewest connections for its weight. The addresses of an endpoint take turns. An address whose
// last dial failed is on trial: the pool dials it once at a time until a dial succeeds. The first
// failure may be an accident, so the next dial starts at once. After each further failure in a row the
// address pauses, and each pause is twice as long. If requests wait, and the dial after a pause fails
// before its timeout, one more dial starts at once. So an SSP that refuses connections costs almost nothing.
// One dead address among several costs only its own dials.
//
// The governor treats a failed look-up like an address that failed.
type governor struct {
	opts *Options // the pool's

	// Dials under way, from begin to ended.
	dialing   int // dialing <= opts.MaxDials, unless SetOptions lowered MaxDials
	offering  int // dials that may become HTTP/2, except those for isolated requests
	onTrial   int // dials to an address on trial
	undecided int // dials that have not picked their address yet

	endpoints *endpoints         // the pool's
	known     []exchange.Address // of the last look-up
	states    map[exchange.Address]*addressState
	lookup    addressState
	shortage  shortage

	lastError *exchange.Error // of the last dial or look-up that failed; never nil
	paused    *exchange.Error // returned to requests that arrive while every address pauses; never nil
}

func newGovernor(o *Options, s *endpoints) governor {
	return governor{opts: o, endpoints: s, states: make(map[exchange.Address]*addressState), lastError: errNotNow, paused: errNotNow}
}

// pause says when the next dial may start if it may not start now.
type pause struct {
	until   time.Time // zero if dials under way decide it
	mayWait bool      // requests may wait for the next dial
}

// ready reports whether a dial may start now, and if not, how long the pause is. While no address is known, any dial
// may start until a look-up fails; then one dial at a time may, after the pause of the look-ups.
func (g *governor) ready(now time.Time) (ok bool, p pause) {
	if g.shortage.until.After(now) {
		return false, pause{until: g.shortage.until, mayWait: true}
	}
	if l := &g.lookup; !l.healthy(now) && l.pausedUntil().After(now) {
		return false, pause{until: l.pausedUntil(), mayWait: l.failures == 0}
	}
	if len(g.known) == 0 {
		return g.lookup.failures == 0 || g.undecided == 0, pause{}
	}
	trials := 0 // addresses on trial that may be dialled now
	for _, e := range g.endpoints.all {
		if e.Barred() {
			continue
		}
		for _, s := range g.statesOf(e) {
			if s.healthy(now) {
				return true, pause{}
			}
			p.mayWait = p.mayWait || s.failures == 0
			switch until := s.pausedUntil(); {
			case s.dialing > 0:
			case !until.After(now):
				trials++
			case p.until.IsZero() || until.Before(p.until):
				p.until = until
			}
		}
	}
	return trials > g.undecided, p
}

// statesOf yields the index and the state of each of e's addresses, beginning with the one whose turn it is. The state
// is nil if the address was never dialled. If e has no addresses, statesOf yields -1 and the state of e's look-ups.
func (g *governor) statesOf(e *endpoint) iter.Seq2[int, *addressState] {
	return func(yield func(int, *addressState) bool) {
		if len(e.addrs) == 0 {
			yield(-1, &e.lookup)
			return
		}
		for i := range e.addrs {
			at := (e.turn + i) % len(e.addrs)
			if !yield(at, g.states[e.addrs[at]]) {
				return
			}
		}
	}
}

// dialableAt returns when the pool may dial an address of e. A time in the past means now.
func (g *governor) dialableAt(e *endpoint, now time.Time) time.Time {
	if g.shortage.until.After(now) {
		return g.shortage.until
	}
	if len(g.known) == 0 {
		return g.lookup.until
	}
	var first time.Time
	for _, s := range g.statesOf(e) {
		if s.healthy(now) {
			return now
		}
		if until := s.pausedUntil(); first.IsZero() || until.Before(first) {
			first = until
		}
	}
	return first
}

// allFailed reports whether the last dial to each address of e failed, or its name has no address.
func (g *governor) allFailed(e *endpoint) bool {
	for _, s := range g.statesOf(e) {
		if s == nil || s.failures == 0 {
			return false
		}
	}
	return true
}

// begin counts a new dial.
func (g *governor) begin(to aim, offerHTTP2 bool) {
	if to.endpoint != nil {
		to.endpoint.dialing++
	}
	g.dialing++
	g.undecided++
	if offerHTTP2 && !to.isolated {
		g.offering++
	}
}

// lookedUp records the addresses of a look-up, or its error. failures is the value of
// lookup.failures when the look-up began. If there are more states than addresses, lookedUp forgets the states of all
// other addresses that are not being dialled.
func (g *governor) lookedUp(addrs []exchange.Address, err error, failures int, now time.Time) {
	g.undecided--
	switch {
	case isLocal(err):
		g.shortage.countFailure(now)
		return
	case err != nil:
		g.lookup.countFailure(failures, false, now, g.opts)
		return
	}
	g.lookup.failures = 0
	g.share(addrs, now)
	if len(g.states) <= len(addrs) {
		return
	}
	for a, s := range g.states {
		if s.dialing == 0 && !slices.Contains(addrs, a) {
			delete(g.states, a)
		}
	}
}

// share gives each endpoint its addresses. For an endpoint without addresses it counts a failed look-up, once the
// pause after the last one is over.
func (g *governor) share(addrs []exchange.Address, now time.Time) {
	if len(addrs) != len(g.known) || &addrs[0] != &g.known[0] { // else nothing changed
		g.known = addrs
		for _, e := range g.endpoints.all {
			e.addrs = nil
		}
		for _, a := range addrs {
			e := g.endpoints.of(a) // nil if the look-up began before a reload removed it
			if e != nil && !slices.Contains(e.addrs, a) {
				e.addrs = append(e.addrs, a)
			}
		}
	}
	for _, e := range g.endpoints.all {
		if len(e.addrs) > 0 {
			e.lookup.failures = 0
		} else if !e.lookup.until.After(now) {
			e.lookup.countFailure(e.lookup.failures, false, now, g.opts)
		}
	}
}

// forget forgets the addresses of removed endpoints. The list is a new slice, so the next look-up
// assigns addresses to new endpoints.
func (g *governor) forget() {
	g.known = slices.DeleteFunc(slices.Clone(g.known), func(a exchange.Address) bool { return g.endpoints.of(a) == nil })
}

// pick chooses the address of a dial, which must belong to want.endpoint if that is not nil. It chooses an address on
// trial only if mayTry is true or no such address is healthy.
func (g *governor) pick(now time.Time, mayTry bool, want aim) (t target, ok bool) {
	list := []*endpoint{want.endpoint}
	if want.endpoint == nil {
		list = g.endpoints.dialOrder(want.waiting)
	}
	var trial *endpoint // the first endpoint with an address on trial that may be dialled
	trialAt := -1
	for _, e := range list {
		if len(e.addrs) == 0 {
			continue
		}
		for at, s := range g.statesOf(e) {
			switch {
			case s.healthy(now):
				return g.takeTurn(e, at, want), true
			case trial != nil || s.dialing > 0 || s.pausedUntil().After(now):
			case mayTry:
				return g.takeTurn(e, at, want), true
			default:
				trial, trialAt = e, at
			}
		}
	}
	if trial != nil {
		return g.takeTurn(trial, trialAt, want), true
	}
	return target{}, false
}

// takeTurn counts a dial to e.addrs[at].
func (g *governor) takeTurn(e *endpoint, at int, want aim) target {
	a := e.addrs[at]
	e.turn = (at + 1) % len(e.addrs)
	if want.endpoint == nil {
		e.dialing++ // for other dials begin has counted it
	}
	s := g.stateOf(a)
	s.dialing++
	t := target{addr: a, endpoint: e, failures: s.failures, onTrial: s.failures > 0}
	if t.onTrial {
		g.onTrial++
	} else {
		t.others = g.othersOf(e, at)
	}
	return t
}

// stateOf returns the state of an address. It creates the state if the address was never dialled.
func (g *governor) stateOf(a exchange.Address) *addressState {
	s := g.states[a]
	if s == nil {
		s = new(addressState)
		g.states[a] = s
	}
	return s
}

// ended removes a dial from the counts. A dial that picked no address passes the zero target.
func (g *governor) ended(t target, want aim, offeredHTTP2 bool) {
	g.dialing--
	if offeredHTTP2 && !want.isolated {
		g.offering--
	}
	if t.onTrial {
		g.onTrial--
	}
	switch {
	case t.endpoint != nil:
		t.endpoint.dialing--
		g.states[t.addr].dialing--
	case want.endpoint != nil:
		want.endpoint.dialing--
	}
}

// connected records that a dial brought a connection that the SSP did not close at once.
func (g *governor) connected(t target, now time.Time) {
	s := g.stateOf(t.addr)
	s.failures, s.retriedAtOnce = 0, false
	g.shortage = shortage{}
	s.space(now, g.opts) // the SSP may still process no request on the new connection
}

// addressFailed records that a dial brought no such connection. again says that a request waits that may survive a
// failed dial.
func (g *governor) addressFailed(t target, err error, again bool, now time.Time) {
	switch {
	case t.endpoint == nil: // the dial picked no address
	case isLocal(err):
		g.shortage.countFailure(now)
	default:
		g.shortage = shortage{} // this machine could dial
		g.stateOf(t.addr).countFailure(t.failures, again && !exchange.IsTimeout(err), now, g.opts)
	}
}

func (g *governor) setLastError(err error) {
	g.lastError = exchange.AsError(err)
	g.paused = &exchange.Error{Outcome: exchange.ConnectFailed, Progress: exchange.NotSent, Detail: errNotNow.Detail, Err: g.lastError}
	switch g.lastError.Outcome {
	case exchange.TLSFailed:
		g.paused.Outcome = exchange.TLSFailed
	case exchange.LocalError:
		g.paused = g.lastError
	}
}

// endedUnprocessed records that a connection to a ended before the SSP processed a request on it. After
// several such connections in a row the governor spaces dials to a. Each space is twice as long,
// until the SSP processes a request. Such an SSP is alive, so requests may wait for the next dial.
func (g *governor) endedUnprocessed(a exchange.Address, now time.Time) {
	if s := g.states[a]; s != nil {
		s.unprocessed++
		s.space(now, g.opts)
	}
}

// processed records that the SSP processed a request on a connection to a.
func (g *governor) processed(a exchange.Address) {
	if s := g.states[a]; s != nil {
		s.unprocessed, s.spaced = 0, time.Time{}
	}
}

// hasWorkingAddress reports whether the governor knows an address that may get requests and whose last dial
// did not fail.
func (g *governor) hasWorkingAddress() bool {
	return g.lookup.failures == 0 && slices.ContainsFunc(g.endpoints.all, func(e *endpoint) bool {
		return !e.Barred() && len(e.addrs) > 0 && !g.allFailed(e)
	})
}

// failing reports whether the last look-up, or the last dial to an address, failed.
func (g *governor) failing() bool {
	if g.lookup.failures+g.shortage.failures > 0 {
		return true
	}
	for _, s := range g.states {
		if s.failures > 0 {
			return true
		}
	}
	return false
}
