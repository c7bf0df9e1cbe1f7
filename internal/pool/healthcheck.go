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

// checkEnded records the result of a health check of e.
func (p *Pool) checkEnded(e *endpoint, err error) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || !p.opts.HealthCheck.on() || !p.conns.endpoints.Checks(e.Endpoint) || isLocal(err) {
		return
	}
	e.stats.checkEnded(err)
	p.applyLocked(e, p.conns.endpoints.CheckEnded(e.Endpoint, err, now), now)
	p.reviveLocked(now)
}
