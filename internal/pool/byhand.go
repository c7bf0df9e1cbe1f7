package pool

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// State is the state that an operator set for an SSP or an endpoint.
type State uint8

// The states.
const (
	Enabled  State = iota
	Draining       // no new requests; running requests finish, and idle connections stay open
	Disabled       // no new requests, and idle connections close
)

var stateNames = [...]string{"enabled", "draining", "disabled"}

// String returns the state's name.
func (s State) String() string { return stateNames[s] }

// ParseState returns the state of a name.
func ParseState(name string) (State, error) {
	if s := slices.Index(stateNames[:], name); s >= 0 {
		return State(s), nil
	}
	return 0, fmt.Errorf("state %.40q must be one of %s", name, strings.Join(stateNames[:], ", "))
}

// MaxWeight is the highest weight of an endpoint.
const MaxWeight = 1000

// byHand holds the changes that an operator made at run time. They survive reloads.
type byHand struct {
	state  State
	weight int // 0 means the configured weight
}

// Refusing reports whether an operator drained or disabled the SSP or all its endpoints. The pool
// itself does not refuse requests for this reason: a caller that admits requests asks first.
func (p *Pool) Refusing() bool { return p.refusing.Load() }

// Left counts how often an endpoint went out while another one served. Failures before such a
// moment say little about the endpoints that serve after it.
func (p *Pool) Left() uint64 { return p.left.Load() }

// SetState changes the state of the whole SSP.
func (p *Pool) SetState(s State) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setSSPStateLocked(s, now)
}

func (p *Pool) setSSPStateLocked(s State, now time.Time) {
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

// SetEndpointState changes the state of an endpoint, and reports whether the endpoint exists.
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
		p.conns.drainEndpoint(e)
	case Draining:
		p.conns.drainSharedOf(e)
	}
}

// SetEndpointWeight changes the weight of an endpoint, and reports whether the endpoint exists.
// Weight 0 restores the configured weight.
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

// Inherit takes over the operator's changes from the pool before. For endpoints that exist in both
// pools it also takes over the counters, the ejections and the results of health checks.
func (p *Pool) Inherit(before *Pool) {
	type heir struct {
		byHand   byHand
		stats    *endpointStats
		ejection ejection
		checks   checkResults
	}
	before.mu.Lock()
	ssp := before.conns.endpoints.byHand
	heirs := make(map[string]heir)
	for _, e := range before.conns.endpoints.all {
		heirs[e.name] = heir{e.byHand, e.stats, e.ejection, e.checks}
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
			if p.opts.HealthCheck.Path != "" {
				e.checks = h.checks
			}
		}
	}
	p.setSSPStateLocked(ssp, now)
}
