package pool

import "time"

// idleRule decides when idle connections close: after idle_timeout or, if the pool sizes itself, sooner if
// the SSP closes them sooner. Guarded by Pool.mu.
//
// Connections that close before the SSP closes them do not show that its limit has become longer. So one
// idle connection of each endpoint stays open longer: the canary. It carries no POST, which must not meet
// a connection that the SSP has closed: a POST that would use the canary closes it. Once canariesNeeded
// canaries in a row have outlasted the limit by a quarter, that is the new limit.
type idleRule struct {
	opts     *Options
	learned  *learnedIdle
	canaries int // endpoints that have a canary
}

// canariesNeeded is how many canaries must have stayed open, with no close between them. The servers
// behind a balancer may differ.
const canariesNeeded = 5

// timeout returns after how long an idle connection closes; 0 = never.
func (r *idleRule) timeout() time.Duration {
	if !r.opts.Auto.Enabled || r.opts.Auto.DryRun {
		return r.opts.IdleTimeout
	}
	return r.learnedTimeout()
}

// learnedTimeout returns what timeout is without a dry run.
func (r *idleRule) learnedTimeout() time.Duration {
	advised, configured := r.learned.advised, r.opts.IdleTimeout
	if advised == 0 || configured > 0 && configured < advised {
		return configured
	}
	return advised
}

// canaryTimeout returns after how long a canary closes. 0 means that there are no canaries, because idle
// connections stay as long as idle_timeout allows.
func (r *idleRule) canaryTimeout() time.Duration {
	if r.timeout() == r.opts.IdleTimeout {
		return 0
	}
	after := r.learned.limit + r.learned.limit/4
	if r.opts.IdleTimeout > 0 {
		after = min(after, r.opts.IdleTimeout)
	}
	return after
}

// IdleTimeoutBelow returns an idle_timeout with which adbuffer closes before an SSP that closes after
// limit: 5 % and at least a second below, rounded. It is 0 if limit is 0, which means unknown.
func IdleTimeoutBelow(limit time.Duration) time.Duration {
	below := min(limit*19/20, limit-time.Second).Truncate(time.Second)
	if below < time.Second { // the SSP closes within two seconds
		below = max(limit/2, 10*time.Millisecond).Truncate(10 * time.Millisecond)
	}
	if limit == 0 {
		return 0
	}
	return below
}

// staysAsCanary reports whether m, which was idle for timeout, is its endpoint's canary from now on or
// already. Canaries take no place from min_idle. A connection whose SSP has announced that it would close it
// by now is no canary.
func (c *connections) staysAsCanary(m *member, now time.Time) bool {
	if m.outlivesAnnounced(now) {
		return false
	}
	e, after := m.ep, c.idleRule.canaryTimeout()
	if e.canary == nil && now.Sub(m.used) < after && c.limit() > c.opts.MinIdle+c.idleRule.canaries {
		e.canary = m
		c.idleRule.canaries++
	}
	return e.canary == m && after > 0
}

// outlasted reports whether m is a canary that stayed open for its time.
func (c *connections) outlasted(m *member, now time.Time) bool {
	after := c.idleRule.canaryTimeout()
	return m.ep.canary == m && after > 0 && now.Sub(m.used) >= after
}

// endCanary makes m, the canary of its endpoint, a usual connection.
func (c *connections) endCanary(m *member) {
	m.ep.canary = nil
	c.idleRule.canaries--
}
