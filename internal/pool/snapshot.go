package pool

import (
	"encoding/json"
	"time"

	"adbuffer/internal/upstream"
)

// ByProtocol counts something by what a connection speaks.
type ByProtocol [upstream.Protocols]int

// MarshalJSON writes an object with a number for each protocol.
func (b ByProtocol) MarshalJSON() ([]byte, error) {
	byName := make(map[string]int, len(b))
	for pr := upstream.HTTP1; pr < upstream.Protocols; pr++ {
		byName[pr.String()] = b[pr]
	}
	return json.Marshal(byName)
}

// Snapshot is a pool at one moment, as /pools and the metrics show it.
type Snapshot struct {
	SSP string `json:"ssp"`
	// Protocol is what was negotiated last.
	Protocol     upstream.Protocol `json:"-"`
	ProtocolName string            `json:"protocol"`

	// Open connections. What a dial will bring is not known before it is over.
	Idle             ByProtocol `json:"idle"`
	Active           ByProtocol `json:"active"`
	Draining         ByProtocol `json:"draining"`
	Dialing          int        `json:"dialing"`
	DialsLimit       int        `json:"dials_limit"`
	ConnectionsLimit int        `json:"connections_limit"` // max_conns

	PlacesInUse   int     `json:"places_in_use"`
	PlacesLimit   int     `json:"places_limit"`
	Saturation    float64 `json:"saturation"`     // PlacesInUse / PlacesLimit
	SaturationMax float64 `json:"saturation_max"` // of the last 60 s

	Pending         int  `json:"pending"`          // those whom no dial will serve
	WaitingForDials int  `json:"waiting_for_dial"` // the others who wait
	PendingLimit    int  `json:"pending_limit"`    // -1 = none
	Warm            bool `json:"warm"`             // min_idle connections have been open

	Arrivals    uint64  `json:"arrivals"`     // requests that asked for a place since start
	HoldSeconds float64 `json:"hold_seconds"` // sum over Holds
	Holds       uint64  `json:"holds"`        // places given back since start

	Lent       uint64 `json:"lent"`        // places lent since start: reused, dialed, waited
	Opened     uint64 `json:"opened"`      // connections since start
	Stale      uint64 `json:"stale"`       // connections since start that were closed when they were to be lent
	DialErrors uint64 `json:"dial_errors"` // since start

	// Need is what the last minute asked of the pool.
	Need Need `json:"need"`
	// LearnedIdleSeconds is after how long the peer closes idle connections,
	// rather too low than too high; 0 while too few were closed to tell.
	LearnedIdleSeconds float64 `json:"learned_idle_seconds"`

	// LastDialError is why a dial failed lately, while an address is one that
	// failed last time.
	LastDialError string `json:"last_dial_error,omitempty"`
	// Demoted: HTTP/2 is not offered for a while, since the peer breaks it.
	// Demotions is how often that began.
	Demoted   bool   `json:"demoted"`
	Demotions uint64 `json:"demotions"`
}

// Snapshot returns the pool as it is now.
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
	for i := range p.stats.failed {
		s.DialErrors += p.stats.failed[i].Load()
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
