package pool

import (
	"fmt"
	"strings"
	"time"
)

// State is what an operator decided about an SSP or an endpoint.
type State uint8

// The states.
const (
	Enabled  State = iota
	Draining       // no new requests; those under way end, and idle connections stay
	Disabled       // no new requests, and idle connections close
)

var stateNames = [...]string{"enabled", "draining", "disabled"}

// String returns the state's name.
func (s State) String() string { return stateNames[s] }

// ParseState returns the state of a name.
func ParseState(name string) (State, error) {
	for s, n := range stateNames {
		if n == name {
			return State(s), nil
		}
	}
	return 0, fmt.Errorf("state %.40q must be one of %s", name, strings.Join(stateNames[:], ", "))
}

// MaxWeight is the highest weight of an endpoint.
const MaxWeight = 1000

// byHand is what an operator changed at run time. It lasts over reloads.
type byHand struct {
	state  State
	weight int // 0 = as configured
}

// Refusing reports whether the SSP is drained or disabled by hand, itself or with all its endpoints.
// Requests are not kept from the pool: a caller that admits them asks first.
func (p *Pool) Refusing() bool { return p.refusing.Load() }

// SetState changes the state of the whole SSP.
func (p *Pool) SetState(s State) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns.endpoints.byHand = s
	p.rebuildLocked(now)
	if s == Disabled {
		p.conns.drainFree()
	}
	p.growLocked(now)
}

// EndpointNames returns the names of all endpoints, in the order of the settings.
func (p *Pool) EndpointNames() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := make([]string, len(p.conns.endpoints.all))
	for i, e := range p.conns.endpoints.all {
		names[i] = e.name
	}
	return names
}

// SetEndpointState changes the state of an endpoint, and reports whether there is one of that name.
func (p *Pool) SetEndpointState(name string, s State) bool {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.conns.endpoints.byName[name]
	if e == nil {
		return false
	}
	p.setStateLocked(e, s, now)
	p.serveLocked(now)
	return true
}

func (p *Pool) setStateLocked(e *endpoint, s State, now time.Time) {
	if s == Enabled && e.byHand.state != Enabled {
		e.returned = now
	}
	e.byHand.state, e.probe = s, noProbe
	p.rebuildLocked(now)
	switch s {
	case Disabled:
		p.conns.drainEndpoint(e, closedMoved)
	case Draining:
		p.conns.drainSharedOf(e, closedMoved)
	}
}

// SetEndpointWeight changes the weight of an endpoint, and reports whether there is one of that name.
// 0 is the configured weight.
func (p *Pool) SetEndpointWeight(name string, weight int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.conns.endpoints.byName[name]
	if e == nil {
		return false
	}
	e.byHand.weight = weight
	p.rebuildLocked(time.Now())
	return true
}

// Inherit takes over what operators decided about the pool before, and of endpoints that both have,
// what was counted and which are ejected.
func (p *Pool) Inherit(before *Pool) {
	type heir struct {
		byHand   byHand
		stats    *endpointStats
		ejection ejection
	}
	before.mu.Lock()
	ssp := before.conns.endpoints.byHand
	heirs := make(map[string]heir)
	for _, e := range before.conns.endpoints.all {
		heirs[e.name] = heir{e.byHand, e.stats, e.ejection}
	}
	before.mu.Unlock()

	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns.endpoints.byHand = ssp
	for _, e := range p.conns.endpoints.all {
		if h, both := heirs[e.name]; both {
			e.stats = h.stats
			e.byHand.weight = h.byHand.weight
			if e.byHand.state != h.byHand.state {
				p.setStateLocked(e, h.byHand.state, now)
			}
			if o := p.ejection.Load(); o != nil && !o.DryRun {
				e.inherit(h.ejection, now)
			}
		}
	}
	p.rebuildLocked(now)
	if ssp == Disabled {
		p.conns.drainFree()
	}
	p.growLocked(now)
}
