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

// Options are the settings of one endpoint.
type Options struct {
	Name     string // host:port
	Weight   int    // ≥ 1; weight / sum of weights is its share of the requests
	Priority int    // ≥ 0; the working endpoints with the lowest priority get the requests
}

// condition is what the Balancer of a new pool inherits of an endpoint.
type condition struct {
	byHand byHand
	checks checkResults
	ejection
}

// Endpoint is one of the SSP's endpoints. Its owner's mutex guards it, except Name, Aside, and the
// counts of Balancer.Ended.
type Endpoint struct {
	Options
	Index int // in Balancer.Endpoints

	failures failures
	aside    atomic.Bool // it is out, and other endpoints serve
	condition

	unreachable bool
	removed     bool // a reload removed the endpoint; its last connections drain

	// Set by Balancer.rebuild.

	barred bool
	active bool
	turns  int // in a round
	// ahead is how many waiting requests e served without a turn. Negative: how many of its turns served no
	// request.
	ahead int
}

// Weight returns the weight in force.
func (e *Endpoint) Weight() int {
	if e.byHand.weight > 0 {
		return e.byHand.weight
	}
	return e.ConfiguredWeight()
}

// ConfiguredWeight returns the weight of the settings.
func (e *Endpoint) ConfiguredWeight() int { return max(1, e.Options.Weight) }

// Enabled reports whether no operator has taken e out of use.
func (e *Endpoint) Enabled() bool { return e.byHand.state == Enabled }

// Active reports whether new requests go to e.
func (e *Endpoint) Active() bool { return e.active }

// Barred reports whether e must not serve requests, even if no other endpoint has a free place: an
// operator or a reload took it out of use, or it is out while another endpoint serves.
func (e *Endpoint) Barred() bool { return e.barred }

// Unreachable reports what SetUnreachable recorded.
func (e *Endpoint) Unreachable() bool { return e.unreachable }

// Aside reports whether e is out while other endpoints serve. It is safe for concurrent use.
func (e *Endpoint) Aside() bool { return e.aside.Load() }

// out reports whether e gets no requests because it fails.
func (e *Endpoint) out() bool { return e.ejected || e.checks.unhealthy }

// canServe reports whether nothing that is known of e prevents it from serving requests.
func (e *Endpoint) canServe() bool { return e.Enabled() && !e.out() && !e.unreachable }

// Unneeded reports whether a connection to e must close as soon as no place of it is in use.
func (e *Endpoint) Unneeded() bool {
	return e.removed || e.barred && !e.Probing() && (e.out() || e.HandState() == Disabled)
}

// HandState returns the state that an operator set.
func (e *Endpoint) HandState() State { return e.byHand.state }

// States are the names of an endpoint's states, as StateName returns them.
var States = []string{Disabled.String(), Draining.String(), Ejected, Unhealthy, Enabled.String()}

// The states of StateName that no operator sets.
const (
	Ejected   = "ejected"
	Unhealthy = "unhealthy"
)

// StateName returns the first state that applies, with the name used in the metrics.
func (e *Endpoint) StateName() string {
	switch {
	case !e.Enabled():
		return e.byHand.state.String()
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
