// Package balancer decides which of an SSP's endpoints gets the next request: by turns and weights,
// priorities, operators' states, ejection, health checks and slow start.
//
// It knows no connections and no clock. Its user, the pool, asks it with Next, takes a connection of
// an endpoint of the Decision, and reports what happened. A method that changes which endpoints get
// requests returns a Change, which the pool applies to its connections.
package balancer

import (
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/cpu"
)

// Settings are the settings of a Balancer.
type Settings struct {
	Endpoints []Options // none = one endpoint without a name
	Ejection  Ejection
	SlowStart time.Duration // a returned endpoint gets its full share after this time; 0 = at once
	Checked   bool          // endpoints have health checks
	// Unhealthy and Healthy are the results of checks in a row that change an endpoint's state.
	Unhealthy, Healthy int
}

// Balancer holds the endpoints of an SSP. The pool's mutex guards it, except the methods that say
// otherwise.
//
// An endpoint can serve if it is enabled by hand, not out (ejected or unhealthy), and not unreachable. Of the
// endpoints that can serve, those of the lowest priority are active: new requests go to them, by
// weight. If no endpoint can serve, the balancer ignores which ones are out. If no endpoint is enabled,
// the SSP admits no requests. Requests admitted before use any endpoint.
type Balancer struct {
	_ cpu.CacheLinePad

	// Each request reads these fields without the mutex.

	ejection atomic.Pointer[Ejection] // nil: no endpoint can be ejected
	refusing atomic.Bool
	left     atomic.Uint64
	_        cpu.CacheLinePad

	settings Settings
	made     time.Time // start of the endpoints' failure windows
	all      []*Endpoint
	state    State       // of the whole SSP
	probes   []*Endpoint // endpoints whose next request may be a probe
	turns    turns       // each request changes it
}

// Init prepares an empty Balancer. Call Set next.
func (b *Balancer) Init(now time.Time) { b.made = now }

// Set changes the settings. Endpoints that stay keep their state; their Index may change. Set returns
// the removed endpoints, which get no more requests.
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
	age := now.Sub(b.made)
	for i, o := range s.Endpoints {
		e := before[o.Name]
		delete(before, o.Name)
		if e == nil {
			e = &Endpoint{Options: Options{Name: o.Name}} // the pool reads the name of an endpoint without its lock
			e.failures.window.Init(s.Ejection.Window, age)
		}
		e.Options.Weight, e.Priority, e.Index = o.Weight, o.Priority, i
		b.all = append(b.all, e)
		e.failures.window.SetLength(s.Ejection.Window, age)
		// An ejection survives a reload. A dry run's ejection survives if the new settings are a
		// dry run too.
		if !ejects || e.ejected == s.Ejection.DryRun {
			e.endEjection(now)
		}
		if !s.Checked {
			e.checks = checkResults{}
		}
		if e.probe == ProbeIsCheck { // a client's request may be the probe now
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

// Decision says which endpoints should serve a request, the best one first.
type Decision struct {
	Beside *Endpoint // the next one in turn that the request does not avoid; nil: it avoids none
	Probe  *Endpoint // the request should be its probe; nil: no endpoint waits for one
	Turn   *Endpoint // whose turn it is
}

// Next returns the endpoints for the next request, which avoids the named endpoint if the name is
// not "". The caller calls UseTurn if the request goes to Turn or in its place to another endpoint,
// and SetProbe if it tried Probe.
func (b *Balancer) Next(avoid string) Decision {
	d := Decision{Turn: b.turns.next()}
	if avoid != "" {
		d.Beside = b.turns.beside(avoid)
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
func (b *Balancer) UseTurn() { b.turns.use() }

// HasOther reports whether another endpoint than the named one gets requests.
func (b *Balancer) HasOther(name string) bool { return b.turns.beside(name) != nil }

// Share returns e's share of n connections or places, 0 if e gets no requests.
func (b *Balancer) Share(e *Endpoint, n int) float64 {
	return float64(n) * float64(e.turns) / float64(len(b.turns.order))
}

// Change says what the pool must do after a change of the Balancer. The zero Change is nothing.
type Change struct {
	Events []Event // to report
	Turns  bool    // which endpoints get requests may have changed
	Drain  bool    // the connections of the endpoint close, since other endpoints serve
}

// mayGoOut reports whether e may go out: an endpoint of another priority can serve, or max_ejected
// allows one more endpoint of its priority.
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
	return out < b.settings.Ejection.most(same)
}

// Refusing reports whether an operator drained or disabled the SSP or all its endpoints. It is safe
// for concurrent use.
func (b *Balancer) Refusing() bool { return b.refusing.Load() }

// Left counts how often an endpoint went out while another one served. It is safe for concurrent use.
func (b *Balancer) Left() uint64 { return b.left.Load() }

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
	e.byHand.state, e.probe = s, NoProbe
	return b.rebuild(now)
}

// SetWeight changes the weight of e. 0 restores the configured weight.
func (b *Balancer) SetWeight(e *Endpoint, weight int, now time.Time) Change {
	e.byHand.weight = weight
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

// rebuild decides again which endpoints are barred and active. Call it after each change of its
// inputs.
func (b *Balancer) rebuild(now time.Time) Change {
	may := func(e *Endpoint) bool { return e.Enabled() && !e.out() }
	serves := (*Endpoint).canServe
	if !slices.ContainsFunc(b.all, serves) { // the outs are ignored
		may = (*Endpoint).Enabled
		serves = func(e *Endpoint) bool { return e.Enabled() && !e.unreachable }
	}
	if !slices.ContainsFunc(b.all, may) {
		may = func(*Endpoint) bool { return true }
		serves = func(e *Endpoint) bool { return !e.unreachable }
	}
	if !slices.ContainsFunc(b.all, serves) {
		serves = may
	}
	best := -1
	for _, e := range b.all {
		if serves(e) && (best < 0 || e.Priority < best) {
			best = e.Priority
		}
	}
	left := false
	for _, e := range b.all {
		e.barred = !may(e)
		e.active = serves(e) && e.Priority == best
		aside := e.barred && e.out()
		left = left || aside && !e.aside.Load()
		e.aside.Store(aside)
	}
	if left {
		b.left.Add(1)
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
			weights = append(weights, e.Weight()*e.started(b.settings.SlowStart, now))
		}
	}
	b.turns.set(active, weights)
	for _, e := range b.turns.order {
		e.turns++
	}
}

// ContinueSlowStart raises the shares of endpoints that returned. Call it about once a second.
func (b *Balancer) ContinueSlowStart(now time.Time) {
	if !slices.ContainsFunc(b.all, func(e *Endpoint) bool { return !e.returned.IsZero() }) {
		return
	}
	b.setTurns(now)
	for _, e := range b.all {
		if e.started(b.settings.SlowStart, now) == fullShare {
			e.returned = time.Time{}
		}
	}
}

// Memory is what the Balancer of a new pool inherits.
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
		e.byHand = before.byHand
		if o := b.ejection.Load(); o != nil && !o.DryRun {
			e.inherit(before.ejection, now)
		}
		if b.settings.Checked {
			e.checks = before.checks
		}
	}
	return b.rebuild(now)
}
