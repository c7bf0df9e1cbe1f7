package pool

import (
	"time"

	"adbuffer/internal/ssp/balancer"
)

// Refusing reports whether an operator drained or disabled the SSP or all its endpoints. The pool
// itself does not refuse requests for this reason: a caller that admits requests asks first.
func (p *Pool) Refusing() bool { return p.conns.endpoints.Refusing() }

// Exclusions counts how often endpoints became excluded: out of service while another endpoint serves. Failures from
// before such a moment say little about the endpoints that serve after it.
func (p *Pool) Exclusions() uint64 { return p.conns.endpoints.Exclusions() }

// SetState changes the state of the whole SSP.
func (p *Pool) SetState(s balancer.State) {
	now := time.Now()
	p.mu.Lock()
	defer p.end(now)
	p.changes.apply(nil, p.conns.endpoints.SetState(s, now))
	p.changes.drainByState()
}

// SetEndpointState changes the state of an endpoint, and reports whether the endpoint exists.
func (p *Pool) SetEndpointState(name string, s balancer.State) bool {
	return p.changeEndpoint(name, func(e *balancer.Endpoint, now time.Time) balancer.Change {
		return p.conns.endpoints.SetEndpointState(e, s, now)
	})
}

// SetEndpointWeight changes the weight of an endpoint, and reports whether the endpoint exists.
// Weight 0 restores the configured weight.
func (p *Pool) SetEndpointWeight(name string, weight int) bool {
	return p.changeEndpoint(name, func(e *balancer.Endpoint, now time.Time) balancer.Change {
		return p.conns.endpoints.SetWeight(e, weight, now)
	})
}

func (p *Pool) changeEndpoint(name string, change func(*balancer.Endpoint, time.Time) balancer.Change) bool {
	now := time.Now()
	p.mu.Lock()
	defer p.end(now)
	e := p.conns.endpoints.byName[name]
	if e == nil {
		return false
	}
	p.changes.apply(e, change(e.Endpoint, now))
	p.changes.drainByState()
	return true
}

// Inherit takes over the operator's changes from the pool before. For endpoints that exist in both
// pools it also takes over the counters, the ejections and the results of health checks. A pool that sizes
// itself also takes over its size, its decisions and the learned idle limit.
func (p *Pool) Inherit(before *Pool) {
	p.auto.inherit(&before.auto)
	before.mu.Lock()
	memory := before.conns.endpoints.Memory()
	stats := make(map[string]*endpointStats)
	for _, e := range before.conns.endpoints.all {
		stats[e.Name] = e.stats
	}
	learned := before.learned
	before.mu.Unlock()
	learned.swept = nil // its array belongs to the pool before

	now := time.Now()
	p.mu.Lock()
	defer p.end(now)
	for _, e := range p.conns.endpoints.all {
		if s := stats[e.Name]; s != nil {
			e.stats = s
		}
	}
	if p.opts.Auto.Enabled {
		p.learned = learned
	}
	p.changes.apply(nil, p.conns.endpoints.Inherit(memory, now))
	p.changes.drainByState()
}

// Options returns the pool's settings.
func (p *Pool) Options() Options {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opts
}

// SetOptions changes the settings of a running pool; SSP and Protocol must stay the same. Idle
// connections above a lowered limit close at once. Connections in use close when no exchange is
// outstanding on them. If the pool may open more connections, waiters get them at once. Waiting
// requests keep their timeout, but requests above a lowered MaxPending are refused.
func (p *Pool) SetOptions(o Options) {
	now := time.Now()
	p.mu.Lock()
	defer p.end(now)
	if o.SSP != p.opts.SSP || o.Protocol != p.opts.Protocol {
		panic("BUG: SSP and Protocol of a pool never change")
	}
	if p.conns.closed {
		return
	}
	p.setOptions(o, now)
	p.checker.set(p.opts.HealthCheck, p.conns.endpoints.all)
}
