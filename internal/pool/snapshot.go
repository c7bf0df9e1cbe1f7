package pool

import (
	"encoding/json"
	"time"

	"adbuffer/internal/metrics"
	"adbuffer/internal/upstream"
)

// byProtocol is a number of connections for each protocol.
type byProtocol [upstream.Protocols]int

// MarshalJSON writes an object with a number for each protocol.
func (b byProtocol) MarshalJSON() ([]byte, error) {
	byName := make(map[string]int, len(b))
	for pr := upstream.HTTP1; pr < upstream.Protocols; pr++ {
		byName[pr.String()] = b[pr]
	}
	return json.Marshal(byName)
}

// Snapshot is the state of a pool at one moment, for /pools and the metrics.
type Snapshot struct {
	SSP string `json:"ssp"`
	// Protocol is the protocol of the last connection.
	Protocol     upstream.Protocol `json:"-"`
	ProtocolName string            `json:"protocol"`

	// Connections by state. The protocol of a dial is unknown until the dial ends.
	Idle             byProtocol `json:"idle"`
	Active           byProtocol `json:"active"`
	Draining         byProtocol `json:"draining"`
	Dialing          int        `json:"dialing"`
	DialsLimit       int        `json:"dials_limit"`
	ConnectionsLimit int        `json:"connections_limit"` // max_conns

	PlacesInUse   int     `json:"places_in_use"`
	PlacesLimit   int     `json:"places_limit"`
	Saturation    float64 `json:"saturation"`     // PlacesInUse / PlacesLimit
	SaturationMax float64 `json:"saturation_max"` // of the last 60 s

	Pending         int  `json:"pending"`          // requests that wait for a released place
	WaitingForDials int  `json:"waiting_for_dial"` // requests that wait for a dial
	PendingLimit    int  `json:"pending_limit"`    // -1 = none
	Warm            bool `json:"warm"`             // min_idle connections have been open

	Arrivals    uint64  `json:"arrivals"`     // requests that needed a place since start
	HoldSeconds float64 `json:"hold_seconds"` // sum over Holds
	Holds       uint64  `json:"holds"`        // places released since start

	Lent       uint64 `json:"lent"`        // places acquired since start: reused, dialed, waited
	Opened     uint64 `json:"opened"`      // connections opened since start
	Stale      uint64 `json:"stale"`       // idle connections that a request found closed, since start
	DialErrors uint64 `json:"dial_errors"` // failed dials since start

	// State is the state that an operator set: enabled, draining or disabled.
	State     string             `json:"state"`
	Endpoints []EndpointSnapshot `json:"endpoints"`

	// Need is what the requests of the last minute needed of the pool.
	Need Need `json:"need"`
	// LearnedIdleSeconds is the idle time after which the SSP closes connections. It is too low
	// rather than too high, and 0 while the SSP has closed too few.
	LearnedIdleSeconds float64 `json:"learned_idle_seconds"`

	// LastDialError is the error of the last failed dial. It is empty unless the last dial to an
	// address failed.
	LastDialError string `json:"last_dial_error,omitempty"`
	// Demoted reports that the pool does not offer HTTP/2 for a while, because the SSP violates it.
	// Demotions counts how often that began.
	Demoted   bool   `json:"demoted"`
	Demotions uint64 `json:"demotions"`
}

// Snapshot returns the current state of the pool.
func (p *Pool) Snapshot() Snapshot {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	load := p.conns.load()
	s := Snapshot{
		SSP: p.opts.SSP, Protocol: p.conns.forecast.protocol, ProtocolName: p.conns.forecast.protocol.String(),
		Dialing: p.governor.dialing, DialsLimit: p.opts.MaxDials, ConnectionsLimit: p.opts.MaxConns,
		PlacesInUse: load.inUse, PlacesLimit: load.possible,
		Saturation: load.saturation(), SaturationMax: p.conns.high.max(now, load.saturation()),
		Pending: p.queue.pending, WaitingForDials: p.queue.n - p.queue.pending, PendingLimit: p.opts.MaxPending,
		Warm:     p.Ready(),
		Arrivals: p.stats.arrivals.Load(), HoldSeconds: p.stats.hold.Sum(), Holds: p.stats.hold.Count(),
		Demoted: p.demotion.on(now), Demotions: p.stats.demotions.Load(),
	}
	for o := reused; o <= waited; o++ {
		s.Lent += p.stats.acquire[o].Count()
	}
	for i := range p.stats.openedBy {
		s.Opened += p.stats.openedBy[i].Load()
	}
	s.Endpoints, s.State = p.conns.endpoints.snapshot(&p.conns), p.conns.endpoints.byHand.String()
	for i := range s.Endpoints {
		s.DialErrors += s.Endpoints[i].DialErrors
	}
	s.Stale = p.stats.stale.Load()
	s.Need, s.LearnedIdleSeconds = p.needs.current(load), p.learned.limit.Seconds()
	for m := range p.conns.members {
		switch {
		case m.draining:
			s.Draining[m.protocol]++
		case m.inUse > 0:
			s.Active[m.protocol]++
		default:
			s.Idle[m.protocol]++
		}
	}
	if p.governor.failing() {
		s.LastDialError = p.governor.lastError.Error()
	}
	return s
}

// EndpointSnapshot is an endpoint at one moment, for /pools and the metrics. Counts cover the time
// since start.
type EndpointSnapshot struct {
	Endpoint string `json:"endpoint"` // host:port
	State    string `json:"state"`    // disabled, draining, ejected or enabled
	Active   bool   `json:"active"`   // gets new requests
	// Unreachable: no connection is open, and the last dial to each address failed.
	Unreachable      bool    `json:"unreachable"`
	Weight           int     `json:"weight"` // in force
	ConfiguredWeight int     `json:"configured_weight"`
	Priority         int     `json:"priority"`
	Share            float64 `json:"share"` // of new requests, 0 to 1

	Connections    int     `json:"connections"` // open connections, including draining ones
	InFlight       int     `json:"in_flight"`   // places in use
	Dialing        int     `json:"dialing"`
	EjectedSeconds float64 `json:"ejected_seconds"` // remaining time of the ejection

	Requests   map[string]uint64 `json:"requests"` // attempts by outcome; outcomes without attempts are absent
	Ejections  uint64            `json:"ejections"`
	DialErrors uint64            `json:"dial_errors"`
	P50Seconds float64           `json:"p50_seconds"` // upper bounds with the precision of the histogram's buckets
	P99Seconds float64           `json:"p99_seconds"`

	stats *endpointStats
}

// state returns the first state that applies, with the name used in the metrics.
func (e *endpoint) state() string {
	switch {
	case e.byHand.state == Disabled, e.byHand.state == Draining:
		return e.byHand.state.String()
	case e.ejected:
		return "ejected"
	default:
		return Enabled.String()
	}
}

func (s *endpoints) snapshot(c *connections) []EndpointSnapshot {
	list := make([]EndpointSnapshot, len(s.all))
	at := make(map[*endpoint]*EndpointSnapshot, len(s.all))
	now := time.Now()
	for i, e := range s.all {
		list[i] = EndpointSnapshot{
			Endpoint: e.name, State: e.state(), Active: e.active, Unreachable: e.unreachable,
			Weight: e.weight(), ConfiguredWeight: max(1, e.opts.Weight), Priority: e.opts.Priority,
			Dialing: e.dialing, Requests: make(map[string]uint64), Ejections: e.stats.ejections.Load(),
			P50Seconds: e.stats.duration.Quantile(0.5), P99Seconds: e.stats.duration.Quantile(0.99), stats: e.stats,
		}
		if e.ejected {
			list[i].EjectedSeconds = max(0, e.until.Sub(now).Seconds())
		}
		for o := range upstream.Outcomes {
			if n := e.stats.outcomes[o].Load(); n > 0 {
				list[i].Requests[o.String()] = n
			}
		}
		for k := range e.stats.failed {
			list[i].DialErrors += e.stats.failed[k].Load()
		}
		at[e] = &list[i]
	}
	for _, e := range c.turns.order {
		at[e].Share += 1 / float64(len(c.turns.order))
	}
	for m := range c.members {
		if e := at[m.ep]; e != nil { // otherwise a reload removed its endpoint
			e.Connections++
			e.InFlight += m.inUse
		}
	}
	return list
}

var (
	descEndpointRequests    = newDesc("endpoint_requests_total", "Attempts at an endpoint of an SSP, by how they ended. Retries and hedges count too.", "endpoint", "outcome")
	descEndpointConnections = newDesc("endpoint_connections", "Open connections to an endpoint.", "endpoint")
	descEndpointState       = newDesc("endpoint_state", "1 for the state that an endpoint is in, the first that applies of: disabled and draining (by hand), ejected, enabled.", "endpoint", "state")
	descEndpointEjections   = newDesc("endpoint_ejections_total", "How often an endpoint was ejected because it failed, or would have been (ejection.dry_run).", "endpoint")
	descEndpointDuration    = newDesc("endpoint_request_duration_seconds", "Time of an attempt at an endpoint, from when it had its connection to the end of the response, in seconds.", "endpoint")
	descSSPState            = newDesc("ssp_state", "1 for the state that an operator has set for an SSP: enabled, draining or disabled.", "state")
)

var endpointStates = []string{Disabled.String(), Draining.String(), "ejected", Enabled.String()}

func (e *EndpointSnapshot) collect(to metrics.Sink) {
	to = to.With(e.Endpoint)
	for _, o := range attemptOutcomes {
		to.Counter(descEndpointRequests, e.stats.outcomes[o].Load(), o.String())
	}
	to.Gauge(descEndpointConnections, float64(e.Connections))
	for _, s := range endpointStates {
		to.Bool(descEndpointState, e.State == s, s)
	}
	to.Counter(descEndpointEjections, e.Ejections)
	to.Histogram(descEndpointDuration, e.stats.duration)
	for k, kind := range dialErrorNames {
		to.Counter(descDialErrors, e.stats.failed[k].Load(), kind)
	}
}
