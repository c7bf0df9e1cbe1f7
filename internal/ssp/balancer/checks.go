package balancer

import "time"

// checkResults holds the results of an endpoint's health checks.
//
//	passing ──Unhealthy failures in a row──▶ failing
//	   ▲                                       │
//	   └───────Healthy successes in a row──────┘
//
// An endpoint whose checks fail becomes unhealthy, and so goes out, if max_ejected allows that.
type checkResults struct {
	failing   bool
	unhealthy bool
	contrary  int   // how many results in a row have contradicted failing
	err       error // error of the last check; nil if it succeeded
}

// record counts the result of a check, and reports whether failing changed.
func (c *checkResults) record(err error, s *Settings) (changed bool) {
	c.err = err
	if failed := err != nil; failed == c.failing {
		c.contrary = 0
		return false
	}
	c.contrary++
	needed := s.Unhealthy
	if c.failing {
		needed = s.Healthy
	}
	if c.contrary < needed {
		return false
	}
	c.failing, c.contrary = !c.failing, 0
	return true
}

// CheckChange is a change that health checks caused.
type CheckChange uint8

// The changes.
const (
	NoCheckChange CheckChange = iota
	ChecksFail                // the checks fail, and the endpoint goes out
	ChecksFailIn              // the checks fail, but max_ejected does not let the endpoint go out
	ChecksPass                // the checks succeed again
)

// Checks reports whether health checks of e are used: they are configured, and no operator or reload has taken e out
// of use.
func (b *Balancer) Checks(e *Endpoint) bool {
	return b.settings.Checked && b.state == Enabled && e.Enabled() && !e.removed
}

// CheckEnded records the result of a health check of e, for which Checks is true.
func (b *Balancer) CheckEnded(e *Endpoint, err error, now time.Time) (change Change) {
	if e.probe == ProbeIsCheck {
		if err == nil {
			change = b.returnEjected(e, now)
		} else {
			e.probeFailed()
		}
	}
	changed := e.checks.record(err, &b.settings)
	event := Event{Endpoint: e.Name, Err: err}
	switch {
	case e.checks.failing && !e.checks.unhealthy && (e.ejected || b.mayGoOut(e)):
		event.Check = ChecksFail
		e.checks.unhealthy = true
		e.endEjection(now) // from now on the checks decide when the endpoint returns
		change = b.rebuild(now)
		change.DrainEndpoint = e.barred
	case changed && e.checks.failing:
		event.Check = ChecksFailIn
	case changed:
		event.Check = ChecksPass
		if e.checks.unhealthy {
			e.checks.unhealthy, e.returned = false, now
			e.failures.clear()
			change = b.rebuild(now)
		}
	default:
		return change
	}
	change.Events = append(change.Events, event)
	return change
}
