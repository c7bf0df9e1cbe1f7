package balancer

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// State is the state that an operator set for an SSP or an endpoint.
type State uint8

// The states.
const (
	Enabled  State = iota
	Draining       // no new requests; running requests finish, and idle HTTP/1 connections stay open
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

// operatorState holds what an operator has set at run time. It survives reloads.
type operatorState struct {
	state  State
	weight int // 0 = the configured weight
}

// Options are the settings of one endpoint.
type Options struct {
	Name     string // host:port
	Weight   int    // ≥ 1; weight / sum of weights is its share of the requests
	Priority int    // ≥ 0; of the endpoints that can serve, those with the lowest priority get the requests
}

// condition is the part of an endpoint's state that the Balancer of a new pool inherits.
type condition struct {
	byOperator operatorState
	checks     checkResults
	ejectionState
}

// Endpoint is one of the SSP's endpoints. The pool's mutex guards it, except Name, Excluded, and the counts of
// Balancer.Ended.
type Endpoint struct {
	Options
	Index int // in Balancer.Endpoints

	failures failures
	excluded atomic.Bool // the endpoint is out, and other endpoints serve
	condition

	unreachable bool
	removed     bool // a reload removed the endpoint; its last connections drain

	// Set by Balancer.rebuild.

	barred    bool
	active    bool
	outranked bool // endpoints with a lower value of Priority can serve
	turns     int  // number of turns in a round
	// ahead is how many waiting requests the endpoint has served without a turn. If negative, it is how many of its
	// turns have served no request.
	ahead int
}

// Weight returns the weight in force.
func (e *Endpoint) Weight() int {
	if e.byOperator.weight > 0 {
		return e.byOperator.weight
	}
	return e.ConfiguredWeight()
}

// ConfiguredWeight returns the weight of the settings.
func (e *Endpoint) ConfiguredWeight() int { return max(1, e.Options.Weight) }

// Enabled reports whether no operator has taken e out of use.
func (e *Endpoint) Enabled() bool { return e.byOperator.state == Enabled }

// Active reports whether new requests go to e.
func (e *Endpoint) Active() bool { return e.active }

// Barred reports whether e must not serve requests, even if no other endpoint has a free place: an operator or a
// reload has taken e out of use, or e is out while another endpoint serves.
func (e *Endpoint) Barred() bool { return e.barred }

// Unreachable reports whether no connection to e can be opened, as SetUnreachable has recorded.
func (e *Endpoint) Unreachable() bool { return e.unreachable }

// Excluded reports whether e is out while other endpoints serve. It is safe for concurrent use.
func (e *Endpoint) Excluded() bool { return e.excluded.Load() }

// out reports whether e gets no requests because it fails.
func (e *Endpoint) out() bool { return e.ejected || e.checks.unhealthy }

// canServe reports whether e can serve: it is enabled, not out, and not unreachable.
func (e *Endpoint) canServe() bool { return e.Enabled() && !e.out() && !e.unreachable }

// Unneeded reports whether a connection to e must close as soon as no place of it is in use.
func (e *Endpoint) Unneeded() bool {
	return e.removed || e.barred && !e.Probing() && (e.out() || e.HandState() == Disabled)
}

// HandState returns the state that an operator has set for e.
func (e *Endpoint) HandState() State { return e.byOperator.state }

// States are the names of an endpoint's states, as StateName returns them.
var States = []string{Disabled.String(), Draining.String(), Ejected, Unhealthy, Enabled.String()}

// The states of StateName that no operator sets.
const (
	Ejected   = "ejected"
	Unhealthy = "unhealthy"
)

// StateName returns the name of e's state, as metrics use it. If several states apply, the first in the order of
// States wins.
func (e *Endpoint) StateName() string {
	switch {
	case !e.Enabled():
		return e.byOperator.state.String()
	case e.ejected:
		return Ejected
	case e.checks.unhealthy:
		return Unhealthy
	default:
		return Enabled.String()
	}
}

// EjectedFor returns the remaining time of the ejection, 0 if e is not ejected.
func (e *Endpoint) EjectedFor(now time.Time) time.Duration {
	if !e.ejected {
		return 0
	}
	return max(0, e.until.Sub(now))
}

// CheckError returns the error of the last health check, nil if it succeeded.
func (e *Endpoint) CheckError() error { return e.checks.err }

// Ejected reports whether e is ejected.
func (e *Endpoint) Ejected() bool { return e.ejected }
