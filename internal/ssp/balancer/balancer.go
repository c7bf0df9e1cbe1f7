// Package balancer decides which of an SSP's endpoints gets the next request: by turns and weights, priorities,
// states that operators set, ejection, health checks and slow start.
//
// It knows no connections and no clock. The pool calls Next, takes a connection of an endpoint of the Decision, and
// reports what happened. A method that changes which endpoints get requests returns a Change, which the pool applies
// to its connections.
package balancer

import (
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/cpu"
)

// Settings are the settings of a Balancer.
type Settings struct {
	Endpoints []Options // empty = one endpoint without a name
	Ejection  Ejection
	SlowStart time.Duration // time until a returned endpoint gets its full share; 0 = at once
	Checked   bool          // endpoints have health checks
	// Unhealthy is how many checks in a row must fail, and Healthy how many must succeed, to change an endpoint's
	// state.
	Unhealthy, Healthy int
}

// Balancer holds the endpoints of an SSP. The pool's mutex guards it; methods that need no mutex say so.
//
// An endpoint can serve if it is enabled, not out (ejected or unhealthy), and not unreachable. Of the endpoints that
// can serve, those with the lowest value of Priority are active: new requests go to them, by weight. If no endpoint
// can serve, the balancer treats endpoints that are out like the others, and if that does not suffice, unreachable ones
// too. If no endpoint is enabled, the SSP admits no new requests, and requests that were admitted before may use any
// endpoint.
//
// The states of an endpoint, of which several may apply. rebuild derives the lower ones from the upper ones:
//
//	state        applies while
//	removed      its last connections drain after a reload removed the endpoint
//	ejected      it has failed too often, and no probe has succeeded since
//	unhealthy    its health checks fail
//	out          it is ejected or unhealthy
//	unreachable  no connection to it is open, and the last dial to each of its addresses failed
//
//	active       it has the lowest value of Priority of those that can serve: new requests and dials go to it
//	barred       it is removed; or not enabled, and another one is enabled; or out, and another one can serve:
//	             no request but its probe goes to it, and its connections drain when it goes out or is removed
//	excluded     it is out and barred: its failures say nothing about the endpoints that serve
//	outranked    an endpoint with a lower value of Priority can serve
//	lost         in package pool: it is enabled and not ejected, but unreachable and not active. The pool dials it when
//	             the pauses of its addresses end
//
// An endpoint that is neither active nor barred is unreachable, or an active one has a lower value of Priority. A
// request goes to it only if the active ones have no free place and, in addition, either have no open connection or
// the pool may open no more connections.
type Balancer struct {
	_ cpu.CacheLinePad

	// Each request reads these fields without the mutex.

	ejection   atomic.Pointer[Ejection] // nil = no endpoint can be ejected
	refusing   atomic.Bool
	exclusions atomic.Uint64
	_          cpu.CacheLinePad

	settings Settings
	epoch    time.Time // the zero time of the endpoints' failure windows
	all      []*Endpoint
	state    State       // the operator's state of the whole SSP
	probes   []*Endpoint // endpoints whose next request may be a probe
	turns    turns       // each request changes it
}

// Init prepares an empty Balancer. Set must be called next.
func (b *Balancer) Init(now time.Time) { b.epoch = now }

// Set changes the settings. Endpoints whose names are in s keep their state, but their Index may change. Set returns
// the endpoints that were removed, which get no more requests.
func (b *Balancer) Set(s Settings, now time.Time) (removed []*Endpoint) {
	if len(s.Endpoints) == 0 {
		s.Endpoints = []Options{{Weight: 1}}
	}
	before := make(map[string]*Endpoint)
	for _, e := range b.all {
		before[e.Name] = e
	}
	b.settings, b.all = s, nil
	b.ejection.Store(nil)
	ejects := s.Ejection.Enabled && len(s.Endpoints) > 1
	if ejects {
		b.ejection.Store(&s.Ejection)
	}
	age := now.Sub(b.epoch)
	for i, o := range s.Endpoints {
		e := before[o.Name]
		delete(before, o.Name)
		if e == nil {
			e = &Endpoint{Options: Options{Name: o.Name}} // the pool reads the name without holding its lock, so the name is set only once
			e.failures.window.Init(s.Ejection.Window, age)
		}
		e.Options.Weight, e.Priority, e.Index = o.Weight, o.Priority, i
		b.all = append(b.all, e)
		e.failures.window.SetLength(s.Ejection.Window, age)
		// An ejection survives a reload, unless the reload switches ejection off, leaves only one endpoint, or
		// changes dry_run.
		if !ejects || e.ejected == s.Ejection.DryRun {
			e.endEjection(now)
		}
		if !s.Checked {
			e.checks = checkResults{}
		}
		if e.probe == ProbeIsCheck { // the probe may have to be a request now
			e.probe = NoProbe
		}
	}
	for _, e := range before {
		e.removed, e.barred, e.active, e.probe = true, true, false, NoProbe
		removed = append(removed, e)
	}
	b.rebuild(now)
	return removed
}

// Endpoints returns all endpoints in the order of the settings. The slice must not be changed.
func (b *Balancer) Endpoints() []*Endpoint { return b.all }

// Decision says which endpoints should serve a request, in the order of preference.
type Decision struct {
	Beside *Endpoint // the next endpoint in turn that the request does not avoid; nil if it avoids none, or there is no other
	Probe  *Endpoint // the endpoint for which the request should be the probe; nil if no endpoint waits for a probe
	Turn   *Endpoint // the endpoint whose turn it is
}

// Next returns the endpoints for the next request. If avoid is not "", the request avoids the endpoint with that
// name. The caller must call UseTurn if the request goes to Turn, or to another endpoint in place of Turn, and
// SetProbe if the request is the probe.
func (b *Balancer) Next(avoid string) Decision {
	d := Decision{Turn: b.turns.next()}
	if avoid != "" {
		d.Beside = b.turns.nextExcept(avoid)
	}
	for len(b.probes) > 0 {
		if e := b.probes[0]; e.probe == ProbeReady {
			d.Probe = e
			break
		}
		b.probes = slices.Delete(b.probes, 0, 1)
	}
	return d
}

// UseTurn ends the turn of Decision.Turn.
func (b *Balancer) UseTurn() { b.turns.advance() }

// HasOther reports whether an endpoint other than the named one gets requests.
func (b *Balancer) HasOther(name string) bool { return b.turns.nextExcept(name) != nil }

// Share returns e's share of n connections or places. It is 0 if e gets no requests.
func (b *Balancer) Share(e *Endpoint, n int) float64 {
	return float64(n) * float64(e.turns) / float64(len(b.turns.order))
}

// LacksOnlyConnection reports whether e gets no requests only because no connection to it is open: none could be
// opened, or e's ejection is over and a request must be its probe.
func (b *Balancer) LacksOnlyConnection(e *Endpoint, now time.Time) bool {
	switch {
	case e.active || e.removed || e.outranked || !e.Enabled() || e.checks.unhealthy:
		return false
	case e.ejected:
		return !b.settings.Checked && e.probe == NoProbe && !e.until.After(now)
	default:
		return e.unreachable
	}
}

// Change says what the pool must do after a change of the Balancer. The zero Change requires nothing.
type Change struct {
	Events        []Event // events to report
	Turns         bool    // the endpoints that get requests may have changed
	DrainEndpoint bool    // the connections of the endpoint must drain, since other endpoints serve
}

// mayGoOut reports whether e may go out: an endpoint of another priority can serve, or max_ejected allows one more
// endpoint of e's priority to be out.
func (b *Balancer) mayGoOut(e *Endpoint) bool {
	same, out := 0, 0
	for _, other := range b.all {
		switch {
		case other.Priority != e.Priority && other.canServe():
			return true
		case other.Priority == e.Priority:
			same++
			if other.out() {
				out++
			}
		}
	}
	return out < b.settings.Ejection.maxOut(same)
}

// Refusing reports whether an operator has drained or disabled the SSP, or all of its endpoints. It is safe for
// concurrent use.
func (b *Balancer) Refusing() bool { return b.refusing.Load() }

// Exclusions returns how often endpoints became excluded. Endpoints that become excluded at the same time count once.
// It is safe for concurrent use.
func (b *Balancer) Exclusions() uint64 { return b.exclusions.Load() }

// State returns the state of the whole SSP.
func (b *Balancer) State() State { return b.state }

// SetState changes the state of the whole SSP.
func (b *Balancer) SetState(s State, now time.Time) Change {
	b.state = s
	return b.rebuild(now)
}

// SetEndpointState changes the state that an operator set for e.
func (b *Balancer) SetEndpointState(e *Endpoint, s State, now time.Time) Change {
	if s == Enabled && !e.Enabled() {
		e.returned = now
	}
	e.byOperator.state, e.probe = s, NoProbe
	return b.rebuild(now)
}

// SetWeight changes the weight of e. A weight of 0 restores the configured weight.
func (b *Balancer) SetWeight(e *Endpoint, weight int, now time.Time) Change {
	e.byOperator.weight = weight
	return b.rebuild(now)
}

// SetUnreachable records whether no connection to e can be opened.
func (b *Balancer) SetUnreachable(e *Endpoint, unreachable bool, now time.Time) Change {
	if e.unreachable == unreachable {
		return Change{}
	}
	e.unreachable = unreachable
	if !unreachable {
		e.returned = now
	}
	return b.rebuild(now)
}

// rebuild derives which endpoints are barred, active, outranked and excluded, whether the SSP refuses requests, and
// the turns. It must be called after each change of its inputs.
func (b *Balancer) rebuild(now time.Time) Change {
	mayServe := func(e *Endpoint) bool { return e.Enabled() && !e.out() }
	serves := (*Endpoint).canServe
	anyCan := slices.ContainsFunc(b.all, serves)
	if !anyCan { // endpoints that are out count like the others
		mayServe = (*Endpoint).Enabled
		serves = func(e *Endpoint) bool { return e.Enabled() && !e.unreachable }
	}
	if !slices.ContainsFunc(b.all, mayServe) {
		mayServe = func(*Endpoint) bool { return true }
		serves = func(e *Endpoint) bool { return !e.unreachable }
	}
	if !slices.ContainsFunc(b.all, serves) {
		serves = mayServe
	}
	best := -1
	for _, e := range b.all {
		if serves(e) && (best < 0 || e.Priority < best) {
			best = e.Priority
		}
	}
	newlyExcluded := false
	for _, e := range b.all {
		e.barred = !mayServe(e)
		e.active = serves(e) && e.Priority == best
		e.outranked = anyCan && e.Priority > best
		excluded := e.barred && e.out()
		newlyExcluded = newlyExcluded || excluded && !e.excluded.Load()
		e.excluded.Store(excluded)
	}
	if newlyExcluded {
		b.exclusions.Add(1)
	}
	b.refusing.Store(b.state != Enabled || !slices.ContainsFunc(b.all, (*Endpoint).Enabled))
	b.setTurns(now)
	return Change{Turns: true}
}

// setTurns computes the turns of the active endpoints. An endpoint in slow start has only part of its
// weight.
func (b *Balancer) setTurns(now time.Time) {
	var active []*Endpoint
	var weights []int
	for _, e := range b.all {
		e.turns, e.ahead = 0, 0
		if e.active {
			active = append(active, e)
			weights = append(weights, e.Weight()*e.slowStartStep(b.settings.SlowStart, now))
		}
	}
	b.turns.set(active, weights)
	for _, e := range b.turns.order {
		e.turns++
	}
}

// ContinueSlowStart raises the shares of endpoints in slow start. It must be called about once a second.
func (b *Balancer) ContinueSlowStart(now time.Time) {
	if !slices.ContainsFunc(b.all, func(e *Endpoint) bool { return !e.returned.IsZero() }) {
		return
	}
	b.setTurns(now)
	for _, e := range b.all {
		if e.slowStartStep(b.settings.SlowStart, now) == fullShare {
			e.returned = time.Time{}
		}
	}
}

// Memory is what the Balancer of a new pool inherits from the Balancer of the old pool.
type Memory struct {
	state     State
	endpoints map[string]condition
}

// Memory returns what another Balancer can inherit.
func (b *Balancer) Memory() Memory {
	m := Memory{state: b.state, endpoints: make(map[string]condition)}
	for _, e := range b.all {
		m.endpoints[e.Name] = e.condition
	}
	return m
}

// Inherit takes over the operator's changes and, for endpoints that exist in both, the ejections and
// the results of health checks.
func (b *Balancer) Inherit(m Memory, now time.Time) Change {
	b.state = m.state
	for _, e := range b.all {
		before := m.endpoints[e.Name] // zero for a new endpoint, whose own condition is zero too
		e.byOperator = before.byOperator
		if o := b.ejection.Load(); o != nil && !o.DryRun {
			e.inherit(before.ejectionState, now)
		}
		if b.settings.Checked {
			e.checks = before.checks
		}
	}
	return b.rebuild(now)
}
