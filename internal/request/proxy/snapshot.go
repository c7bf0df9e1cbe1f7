package proxy

import (
	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/machine/overload"
	"adbuffer/internal/wire/exchange"
)

// Snapshot is the state of the request path, for the admin page. Its counters are read one after the other while requests
// run. They count since the process started.
// Requests, Outcomes, Fills and NoAds do not include requests of routes that a reload has removed.
type Snapshot struct {
	Requests           uint64            `json:"requests"`
	Outcomes           map[string]uint64 `json:"outcomes"` // outcomes that occurred, by name
	Fills              uint64            `json:"fills"`    // responses with the outcome Fill, and those that routeStats.merged counts
	NoAds              map[string]uint64 `json:"no_ads"`   // by origin
	InFlight           int               `json:"in_flight"`
	InFlightLimit      int               `json:"in_flight_limit"`
	Uploads            int               `json:"uploads"`
	UploadsLimit       int               `json:"uploads_limit"`
	Clients            int64             `json:"client_connections"`
	ClientsLimit       int               `json:"client_connections_limit"`
	BufferedBytes      int64             `json:"buffered_bytes"`
	BufferedBytesLimit int64             `json:"buffered_bytes_limit"`
	Panics             uint64            `json:"panics"`
	Unreadable         uint64            `json:"openrtb_unreadable"` // bodies that could not be used for a condition or an edit; see openrtb.Reason
	Overload           overload.State    `json:"overload"`
}

// Snapshot returns the current state of the request path.
func (p *Proxy) Snapshot() Snapshot {
	v := p.current()
	s := Snapshot{
		Outcomes: make(map[string]uint64), NoAds: make(map[string]uint64),
		InFlight: p.inFlight.Now(), InFlightLimit: p.inFlight.Limit(),
		Clients: int64(p.Open()), ClientsLimit: v.opts.MaxConnections,
		BufferedBytes: p.budget.Used(), BufferedBytesLimit: p.budget.Limit(), Panics: p.panics.Load(),
		Overload: v.opts.Overload.State(),
	}
	s.Uploads, s.UploadsLimit, _ = p.uploads.counts()
	for why := range p.unreadable {
		s.Unreadable += p.unreadable[why].Load()
	}
	for _, rs := range v.routes {
		for o := range exchange.Outcomes {
			if n := rs.outcomes[o].Load(); n > 0 {
				s.Outcomes[o.String()] += n
				s.Requests += n
			}
		}
		s.Fills += rs.outcomes[exchange.Fill].Load() + rs.merged.Load()
		for o, name := range originNames {
			s.NoAds[name] += rs.noAds[o].Load()
		}
	}
	return s
}

// RouteCounts holds the counters of one route, which reloads keep while they keep the route's name. The requests that
// match no route have the name "none".
type RouteCounts struct {
	Name     string
	Outcomes map[string]uint64 // outcomes that occurred, by name
	Masked   uint64            // error and unreadable responses of SSPs that on_error replaced
	Merged   uint64            // responses with the outcome Merged that contain a bid, or the fill of an SSP
	Latency  *metrics.Histogram

	Preflights uint64 // OPTIONS requests that routes[].cors responded to; not in Outcomes
}

// Routes returns the counters of all routes that had requests, in the configuration's order, and last those of the
// requests that match no route.
func (p *Proxy) Routes() []RouteCounts {
	var all []RouteCounts
	for _, rs := range p.current().routes {
		r := RouteCounts{Name: rs.name, Outcomes: make(map[string]uint64), Masked: rs.masked.Load(), Merged: rs.merged.Load(), Latency: rs.duration, Preflights: rs.preflights.Load()}
		for o := range exchange.Outcomes {
			if n := rs.outcomes[o].Load(); n > 0 {
				r.Outcomes[o.String()] = n
			}
		}
		if len(r.Outcomes) > 0 || r.Preflights > 0 {
			all = append(all, r)
		}
	}
	return all
}
