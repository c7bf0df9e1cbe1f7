package pool

import (
	"cmp"
	"slices"
	"time"

	"adbuffer/internal/upstream"
)

// endpoints holds all endpoints of the SSP, and decides which of them get requests. Guarded by
// Pool.mu.
//
// An endpoint can serve if it is enabled by hand, not out (ejected or unhealthy), and not unreachable. Of the
// endpoints that can serve, those of the lowest priority are active: new requests go to them, by
// weight. If no endpoint can serve, the pool ignores which ones are out. If no endpoint is enabled,
// the SSP admits no requests. Requests admitted before use any endpoint.
type endpoints struct {
	all    []*endpoint
	byName map[string]*endpoint
	active []*endpoint

	byHand State // state of the whole SSP
	kept   *int  // connections in the idle lists of all endpoints
}

func newEndpoints(o *Options, kept *int) endpoints {
	s := endpoints{kept: kept}
	s.set(o, 0)
	return s
}

// set applies the endpoint settings of o. Endpoints that stay keep their state; new ones begin
// without connections. set returns the new endpoints and the removed ones. age is the pool's age.
func (s *endpoints) set(o *Options, age time.Duration) (added, gone []*endpoint) {
	before := s.byName
	list := o.Endpoints
	if len(list) == 0 {
		list = []EndpointOptions{{Weight: 1}}
	}
	s.all, s.byName = nil, make(map[string]*endpoint, len(list))
	for _, eo := range list {
		e := before[eo.Name]
		if e == nil {
			e = &endpoint{name: eo.Name, stats: newEndpointStats(), idle: idleList{kept: s.kept}}
			e.health.window.Init(o.Ejection.Window, age)
			added = append(added, e)
		}
		e.opts = eo
		s.all = append(s.all, e)
		s.byName[eo.Name] = e
	}
	for name, e := range before {
		if s.byName[name] == nil {
			gone = append(gone, e)
		}
	}
	return added, gone
}

// of returns the endpoint of an address, or nil if a reload has removed it.
func (s *endpoints) of(a upstream.Address) *endpoint {
	if a.Name == "" {
		return s.all[0]
	}
	return s.byName[a.Name]
}

// mayGoOut reports whether e may go out: an endpoint of another priority can serve, or max_ejected
// allows one more endpoint of its priority.
func (s *endpoints) mayGoOut(e *endpoint, o *EjectionOptions) bool {
	same, out := 0, 0
	for _, other := range s.all {
		switch {
		case other.opts.Priority != e.opts.Priority && other.canServe():
			return true
		case other.opts.Priority == e.opts.Priority:
			if same++; other.out() {
				out++
			}
		}
	}
	return out < o.most(same)
}

// admitting reports whether the operator lets the SSP take requests.
func (s *endpoints) admitting() bool {
	return s.byHand == Enabled && slices.ContainsFunc(s.all, (*endpoint).enabled)
}

// disabled reports whether idle connections to e must close because an operator disabled e or the
// SSP.
func (s *endpoints) disabled(e *endpoint) bool {
	return s.byHand == Disabled || e.byHand.state == Disabled
}

func (e *endpoint) enabled() bool { return e.byHand.state == Enabled }

// out reports whether e gets no requests because it fails.
func (e *endpoint) out() bool { return e.ejected || e.checks.unhealthy }

// canServe reports whether nothing that the pool knows prevents e from serving requests.
func (e *endpoint) canServe() bool { return e.enabled() && !e.out() && !e.unreachable }

// rebuild decides again which endpoints are barred and active. Call it after each change of its
// inputs. It reports whether an endpoint has gone out while another one serves.
func (s *endpoints) rebuild() (left bool) {
	may := func(e *endpoint) bool { return e.enabled() && !e.out() }
	serves := (*endpoint).canServe
	if !slices.ContainsFunc(s.all, serves) { // the outs are ignored
		may = (*endpoint).enabled
		serves = func(e *endpoint) bool { return e.enabled() && !e.unreachable }
	}
	if !slices.ContainsFunc(s.all, may) {
		may = func(*endpoint) bool { return true }
		serves = func(e *endpoint) bool { return !e.unreachable }
	}
	if !slices.ContainsFunc(s.all, serves) {
		serves = may
	}
	best := -1
	for _, e := range s.all {
		if serves(e) && (best < 0 || e.opts.Priority < best) {
			best = e.opts.Priority
		}
	}
	s.active = nil
	for _, e := range s.all {
		e.barred = !may(e)
		if e.active = serves(e) && e.opts.Priority == best; e.active {
			s.active = append(s.active, e)
		}
		aside := e.barred && e.out()
		left = left || aside && !e.aside.Load()
		e.aside.Store(aside)
	}
	return left
}

// weights returns the weights of the active endpoints. An endpoint in slow start has only part of
// its weight.
func (s *endpoints) weights(slowStart time.Duration, now time.Time) []int {
	all := make([]int, len(s.active))
	for i, e := range s.active {
		all[i] = max(1, e.weight()*e.started(slowStart, now))
	}
	return all
}

// byCrowding returns the active endpoints, the least crowded first, and then the other endpoints
// that are not barred.
func (s *endpoints) byCrowding() []*endpoint {
	if len(s.all) == 1 {
		return s.all
	}
	list := slices.Clone(s.active)
	slices.SortStableFunc(list, func(a, b *endpoint) int { return cmp.Compare(a.crowding(), b.crowding()) })
	for _, e := range s.all {
		if !e.active && !e.barred {
			list = append(list, e)
		}
	}
	return list
}

// rebuildLocked decides again which endpoints get requests, after an endpoint changed, and applies
// the result to the connections.
func (p *Pool) rebuildLocked(now time.Time) {
	c := &p.conns
	if c.endpoints.rebuild() {
		p.left.Add(1)
	}
	c.turns.set(c.endpoints.active, c.endpoints.weights(p.opts.SlowStart, now))
	c.benched = 0
	for _, e := range c.endpoints.all {
		if e.barred {
			c.benched += e.open
		}
	}
	p.refusing.Store(!c.endpoints.admitting())
	p.noteWarmLocked()
	p.drainInactiveLocked()
	p.reviveLocked(now)
}

// drainInactiveLocked drains multiplexed connections to inactive endpoints once an active one has a
// connection. Idle exclusive connections stay until idle_timeout, or until the pool needs their
// place.
func (p *Pool) drainInactiveLocked() {
	s := &p.conns.endpoints
	if len(s.all) == 1 || !slices.ContainsFunc(s.active, func(e *endpoint) bool { return e.open > 0 }) {
		return
	}
	for _, e := range s.all {
		if !e.active && !e.probing() {
			p.conns.drainSharedOf(e)
		}
	}
}
