package pool

import (
	"slices"
	"time"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/wire/exchange"
)

// endpoint is one of the SSP's endpoints, with its connections and addresses. Guarded by Pool.mu, except
// Name and stats.
type endpoint struct {
	*balancer.Endpoint
	stats *endpointStats

	idle    idleList
	shared  []*member // multiplexed connections that take requests
	open    int       // connections that are not draining
	dialing int       // dials under way to one of its addresses

	addrs []exchange.Address // of the last look-up
	turn  int                // index in addrs of the next address
	// lookup is the state of look-ups that found addresses of other endpoints but none of this one.
	lookup addressState

	dialError error // of the last dial or look-up; nil if a connection has been opened since
}

// endpoints holds the endpoints of the SSP. Guarded by Pool.mu, except the methods of the Balancer that
// are safe for concurrent use.
type endpoints struct {
	all    []*endpoint // by their Index
	byName map[string]*endpoint
	kept   *int // connections in the idle lists of all endpoints
	balancer.Balancer
}

// set applies the endpoint settings of o. It returns the new endpoints and the removed ones.
func (s *endpoints) set(o *Options, now time.Time) (added, removed []*endpoint) {
	before := s.byName
	for _, e := range s.Set(o.balancer(), now) {
		removed = append(removed, before[e.Name])
	}
	s.all, s.byName = nil, make(map[string]*endpoint)
	for _, b := range s.Endpoints() {
		e := before[b.Name]
		if e == nil {
			e = &endpoint{Endpoint: b, stats: newEndpointStats(), idle: idleList{kept: s.kept}}
			added = append(added, e)
		}
		s.all = append(s.all, e)
		s.byName[b.Name] = e
	}
	return added, removed
}

// of returns the endpoint of an address, or nil if a reload has removed it.
func (s *endpoints) of(a exchange.Address) *endpoint {
	if a.Name == "" {
		return s.all[0]
	}
	return s.byName[a.Name]
}

// disabled reports whether idle connections to e must close because an operator disabled e or the
// SSP.
func (s *endpoints) disabled(e *endpoint) bool {
	return s.State() == balancer.Disabled || e.HandState() == balancer.Disabled
}

// dialOrder returns the endpoints that a dial may go to, the best one first. waiting says that a request waits for
// the dial.
func (s *endpoints) dialOrder(waiting bool) (order []*endpoint) {
	conns := func(e *balancer.Endpoint) int { return s.all[e.Index].open + s.all[e.Index].dialing }
	for _, e := range s.DialOrder(waiting, conns) {
		order = append(order, s.all[e.Index])
	}
	return order
}

// crowding returns the number of connections of e, including the next one, divided by its weight.
func (e *endpoint) crowding() float64 {
	return float64(e.open+e.dialing+1) / float64(e.Weight())
}

// applyLocked applies a change of e, which the balancer decided. If e is nil, the change concerns the
// whole SSP.
func (p *Pool) applyLocked(e *endpoint, c balancer.Change) {
	report := p.opts.Events // the goroutines read no settings
	for _, event := range c.Events {
		if event.Ejected {
			e.stats.ejections.Add(1)
		}
		if report != nil && !p.closed {
			p.wg.Go(func() { report(event) })
		}
	}
	if c.Turns {
		p.applyTurnsLocked()
	}
	if c.Drain {
		p.conns.drainEndpoint(e)
	}
	if c.Turns || c.Drain {
		p.conns.due |= dueServe
	}
}

// applyTurnsLocked applies to the connections that other endpoints may get requests now.
func (p *Pool) applyTurnsLocked() {
	c := &p.conns
	c.unusable = 0
	for _, e := range c.endpoints.all {
		if e.Barred() {
			c.unusable += e.open
		}
	}
	p.noteWarmLocked()
	p.drainInactiveLocked()
	p.conns.due |= dueRevive
}

// drainInactiveLocked drains multiplexed connections to inactive endpoints once an active one has a
// connection. Idle exclusive connections stay until idle_timeout, or until the pool needs their
// place.
func (p *Pool) drainInactiveLocked() {
	s := &p.conns.endpoints
	if len(s.all) == 1 || !slices.ContainsFunc(s.all, func(e *endpoint) bool { return e.Active() && e.open > 0 }) {
		return
	}
	for _, e := range s.all {
		if !e.Active() && !e.Probing() {
			p.conns.drainSharedOf(e)
		}
	}
}

// Ended records how an attempt on the place ended, after Do, and its result for the endpoint. client
// is the group of the client that sent the request. Ended reports whether the attempt failed at an
// endpoint that is out while others serve. Such a failure says nothing about the endpoints that get
// the requests.
func (pl Place) Ended(o exchange.Outcome, result exchange.Result, client rates.Group, t *exchange.Times) (aside bool) {
	m := pl.m
	m.ep.stats.ended(o, t.Done.Sub(t.Acquired))
	if pl.probe {
		m.pool.probeEnded(m, result)
	} else if m.pool.conns.endpoints.Ended(m.ep.Endpoint, result, client, t.Done) {
		m.pool.eject(m.ep, t.Done)
	}
	return result == exchange.Failure && m.ep.Excluded()
}

func (p *Pool) eject(e *endpoint, now time.Time) {
	p.mu.Lock()
	defer p.end(now)
	if !p.closed {
		p.applyLocked(e, p.conns.endpoints.Eject(e.Endpoint, now))
	}
}

// probeEnded records how the first request after an ejection ended.
func (p *Pool) probeEnded(m *member, result exchange.Result) {
	now := time.Now()
	p.mu.Lock()
	defer p.end(now)
	p.applyLocked(m.ep, p.conns.endpoints.ProbeEnded(m.ep.Endpoint, result, m.ep.open > 0, now))
	p.conns.due |= dueRevive
}

// Refusing reports whether an operator drained or disabled the SSP or all its endpoints. The pool
// itself does not refuse requests for this reason: a caller that admits requests asks first.
func (p *Pool) Refusing() bool { return p.conns.endpoints.Refusing() }

// Left counts how often an endpoint went out while another one served. Failures before such a
// moment say little about the endpoints that serve after it.
func (p *Pool) Left() uint64 { return p.conns.endpoints.Exclusions() }

// SetState changes the state of the whole SSP.
func (p *Pool) SetState(s balancer.State) {
	now := time.Now()
	p.mu.Lock()
	defer p.end(now)
	p.applyLocked(nil, p.conns.endpoints.SetState(s, now))
	p.drainByStateLocked()
}

// drainByStateLocked drains the connections that the operator's states allow no more.
func (p *Pool) drainByStateLocked() {
	for _, e := range p.conns.endpoints.all {
		switch e.HandState() {
		case balancer.Disabled:
			p.conns.drainEndpoint(e)
		case balancer.Draining:
			p.conns.drainSharedOf(e)
		}
	}
	if p.conns.endpoints.State() == balancer.Disabled {
		p.conns.drainFree()
	}
	p.conns.due |= dueServe
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
	p.applyLocked(e, change(e.Endpoint, now))
	p.drainByStateLocked()
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
	p.applyLocked(nil, p.conns.endpoints.Inherit(memory, now))
	p.drainByStateLocked()
}
