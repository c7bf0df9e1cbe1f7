package pool

import (
	"encoding/json"
	"time"

	"adbuffer/internal/wire/exchange"
)

// byProtocol is a number of connections for each protocol.
type byProtocol [exchange.Protocols]int

// MarshalJSON writes an object with a number for each protocol.
func (b byProtocol) MarshalJSON() ([]byte, error) {
	byName := make(map[string]int, len(b))
	for pr := exchange.HTTP1; pr < exchange.Protocols; pr++ {
		byName[pr.String()] = b[pr]
	}
	return json.Marshal(byName)
}

// Snapshot is the state of a pool at one moment, for /pools and the metrics.
type Snapshot struct {
	SSP string `json:"ssp"`
	// Protocol is the protocol of the last connection.
	Protocol     exchange.Protocol `json:"-"`
	ProtocolName string            `json:"protocol"`

	// Connections by state. The protocol of a dial is unknown until the dial ends.
	Idle             byProtocol `json:"idle"`
	Active           byProtocol `json:"active"`
	Draining         byProtocol `json:"draining"`
	Dialing          int        `json:"dialing"`
	DialsLimit       int        `json:"dials_limit"`
	ConnectionsLimit int        `json:"connections_limit"` // max_conns

	PlacesInUse    int     `json:"places_in_use"`
	PlacesInUseMax int     `json:"places_in_use_max"` // of the last 60 s
	PlacesLimit    int     `json:"places_limit"`
	Saturation     float64 `json:"saturation"`     // PlacesInUse / PlacesLimit
	SaturationMax  float64 `json:"saturation_max"` // of the last 60 s

	Pending         int  `json:"pending"`          // requests that wait for a released place
	WaitingForDials int  `json:"waiting_for_dial"` // requests that wait for a dial
	PendingLimit    int  `json:"pending_limit"`    // -1 = none
	Warm            bool `json:"warm"`             // min_idle connections have been open

	// FairQueues is in how many of the 64 fair queues requests wait; 0 without server.fairness.key.
	FairQueues int `json:"fair_queues"`

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

	// Auto is nil if the pool has its configured size.
	Auto *AutoSnapshot `json:"auto,omitempty"`

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
	auto := p.auto.snapshot(now) // takes its lock before Pool.mu
	p.mu.Lock()
	defer p.mu.Unlock()
	load, isolated := p.size.load(), &p.isolation.queue
	highest := load.peak().max(p.size.peak).max(p.needs.peak(now))
	s := Snapshot{
		SSP: p.opts.SSP, Protocol: p.conns.forecast.protocol, ProtocolName: p.conns.forecast.protocol.String(),
		Dialing: p.governor.dialing, DialsLimit: p.opts.MaxDials, ConnectionsLimit: p.opts.MaxConns,
		PlacesInUse: load.inUse, PlacesInUseMax: highest.inUse, PlacesLimit: load.possible,
		Saturation: load.saturation(), SaturationMax: highest.saturation,
		Pending:         p.queue.pending + isolated.pending,
		WaitingForDials: p.queue.n - p.queue.pending + len(p.elsewhere.waiters) + isolated.n - isolated.pending, PendingLimit: p.opts.MaxPending,
		Warm: p.Ready(), FairQueues: p.queue.active(),
		Arrivals: p.stats.arrivals.Load(), HoldSeconds: p.stats.hold.Sum(), Holds: p.stats.hold.Count(),
		Demoted: p.demotion.on(now), Demotions: p.stats.demotions.Load(),
	}
	for o := reused; o <= waited; o++ {
		s.Lent += p.stats.acquire[o].Count()
	}
	for i := range p.stats.openedBy {
		s.Opened += p.stats.openedBy[i].Load()
	}
	s.Endpoints, s.State = p.conns.endpoints.snapshot(&p.conns), p.conns.endpoints.State().String()
	for i := range s.Endpoints {
		s.DialErrors += s.Endpoints[i].DialErrors
	}
	s.Stale = p.stats.stale.Load()
	s.Auto = auto
	if auto != nil {
		auto.IdleTimeoutSeconds = p.conns.idleRule.learnedTimeout().Seconds()
	}
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
