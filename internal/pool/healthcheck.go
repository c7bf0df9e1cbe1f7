package pool

import "time"

// HealthCheck are the settings of active health checks: a GET to each endpoint at each interval.
type HealthCheck struct {
	Path               string // "" = nothing is checked
	Interval, Timeout  time.Duration
	Unhealthy, Healthy int // results in a row that change the state
	// Paused checks nothing, and leaves the endpoints in their states.
	Paused bool
	// Scheme and Host are those of the SSP's requests. An empty Host is the endpoint's.
	Scheme, Host string
}

// on reports whether endpoints are checked now.
func (o *HealthCheck) on() bool { return o.Path != "" && !o.Paused }

// checkResults holds the results of an endpoint's health checks. Guarded by Pool.mu.
//
//	passing ──Unhealthy failures in a row──▶ failing
//	   ▲                                       │
//	   └───────Healthy successes in a row──────┘
//
// An endpoint whose checks fail becomes unhealthy, if max_ejected allows that: it is out then.
type checkResults struct {
	failing   bool
	unhealthy bool
	inARow    int   // results that contradict failing
	err       error // of the last check; nil if it succeeded
}

// record counts the result of a check, and reports whether failing changed.
func (c *checkResults) record(err error, o *HealthCheck) (changed bool) {
	c.err = err
	if failed := err != nil; failed == c.failing {
		c.inARow = 0
		return false
	}
	c.inARow++
	enough := o.Unhealthy
	if c.failing {
		enough = o.Healthy
	}
	if c.inARow < enough {
		return false
	}
	c.failing, c.inARow = !c.failing, 0
	return true
}

// CheckChange is a change that health checks caused.
type CheckChange uint8

// The changes.
const (
	NoCheckChange CheckChange = iota
	ChecksFail                // the endpoint is out
	ChecksFailIn              // the endpoint fails its checks, and max_ejected keeps it in
	ChecksPass                // the endpoint is no longer failing
)

// checkEnded records the result of a health check of e.
func (p *Pool) checkEnded(e *endpoint, err error) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	o := &p.opts.HealthCheck
	if p.closed || e.gone || !o.on() || !p.conns.endpoints.checked(e) || isLocal(err) {
		return
	}
	e.stats.checkEnded(err)
	if e.probe == probeIsCheck {
		if err == nil {
			p.backLocked(e, now)
		} else {
			e.probeFailed(now)
		}
	}
	changed := e.checks.record(err, o)
	event := Event{Endpoint: e.name, Err: err}
	switch {
	case e.checks.failing && !e.checks.unhealthy && (e.ejected || p.conns.endpoints.mayGoOut(e, &p.opts.Ejection)):
		event.Check = ChecksFail
		e.checks.unhealthy = true
		e.ejection.end(now) // from now on the checks decide
		p.tellLocked(event)
		p.outLocked(e, now)
	case changed && e.checks.failing:
		event.Check = ChecksFailIn
		p.tellLocked(event)
	case changed:
		event.Check = ChecksPass
		p.tellLocked(event)
		if e.checks.unhealthy {
			e.checks.unhealthy, e.returned = false, now
			e.health.clear()
			p.rebuildLocked(now)
			p.growLocked(now)
		}
	}
	p.reviveLocked(now)
}

// checked reports whether e is checked: no operator has taken it out of use.
func (s *endpoints) checked(e *endpoint) bool { return s.byHand == Enabled && e.enabled() }
