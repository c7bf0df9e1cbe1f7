package adminview

import (
	"fmt"
	"time"

	"adbuffer/internal/operate/advice"
	"adbuffer/internal/setup/reload"
	"adbuffer/internal/ssp/dial"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/logs"
)

// poolView is one SSP as /pools shows it.
type poolView struct {
	pool.Snapshot
	Protocol    string                    `json:"protocol"`
	Connections map[string]map[string]int `json:"connections"` // by protocol and state
	Limits      advice.Limits             `json:"limits"`
	Requests    ssp.Snapshot              `json:"requests"`
	Shape       *shapeView                `json:"shape,omitempty"` // absent without qps.shape
	LastMinute  lastMinute                `json:"last_minute"`
	URLs        []string                  `json:"urls"`
	ReuseRatio  float64                   `json:"reuse_ratio"` // share of acquired places that needed no new connection; 0 before the first request
	// OutcomesLastMinute counts the requests of LastMinute by outcome.
	OutcomesLastMinute map[string]uint64 `json:"outcomes_last_minute"`
	Advice             string            `json:"advice"` // "" while no request can be sent to the SSP
	// Now says what troubles the SSP at this moment, in one sentence for each cause, and what pool.auto does.
	Now []string `json:"now"`
	// AddressChanges are the last changes of the addresses that DNS returns for the SSP's names.
	AddressChanges []dial.AddressChange `json:"address_changes,omitempty"`
	// IdleAdvice names a better idle_timeout than the one in force; "" = no better one is known.
	IdleAdvice string `json:"idle_advice,omitempty"`
}

// Service is the process as /pools shows it.
type Service struct {
	Version        string    `json:"version"`
	Commit         string    `json:"commit"`
	Go             string    `json:"go"`
	State          string    `json:"state"` // starting, ready, draining
	Listen         string    `json:"listen"`
	Now            time.Time `json:"now"`
	UptimeSeconds  float64   `json:"uptime_seconds"`
	ConfigHash     string    `json:"config_hash"`
	Via            string    `json:"via"`              // the name of this process in Via
	OpenFilesLimit int       `json:"open_files_limit"` // ulimit -n; 0 = unknown or no limit
}

// Pools returns the response to GET /pools: the SSP named only, or all SSPs if only is "". The caller gives
// totals, and service without ConfigHash.
func (v *Views) Pools(service Service, totals any, only string) any {
	views := []poolView{}
	v.versions.Look(func(current *reload.Version) {
		service.ConfigHash = current.Hash()
		for _, p := range current.Parts {
			if only == "" || only == p.Config.Name {
				views = append(views, v.viewOf(p))
			}
		}
	})
	return map[string]any{"service": service, "totals": totals, "pools": views}
}

func (v *Views) viewOf(p *reload.Part) poolView {
	snap, o := p.SSP.Pool().Snapshot(), p.SSP.Pool().Options()
	for i := range snap.Endpoints {
		snap.Endpoints[i].LastDialError = logs.Cut(snap.Endpoints[i].LastDialError)
	}
	state := p.SSP.Snapshot()
	row, fit, now := v.history.rowOf(p), "", []string{}
	if row.Urgency != int(down) {
		fit = advice.ForPool(&snap, &o)
	}
	for _, t := range row.troubles {
		if t.text != "" { // other fields have the states of endpoints and of the breaker
			now = append(now, t.text)
		}
	}
	return poolView{
		Snapshot: snap, Protocol: snap.Protocol.String(), Connections: connectionsView(&snap),
		Limits: advice.Limits{
			MaxConns: o.MaxConns, MaxHTTP2Conns: o.MaxHTTP2Conns, MinIdle: o.MinIdle, MaxIdle: o.MaxIdle,
			IdleTimeout: o.IdleTimeout.String(), MaxAge: o.MaxAge.String(), MaxRequests: o.MaxRequests,
			MaxPending: o.MaxPending, PendingTimeout: o.PendingTimeout.String(), MaxDials: o.MaxDials,
			MaxStreams: o.MaxStreams, PipelineDepth: o.PipelineDepth, Sources: len(p.Config.SourceAddresses), MaxInFlight: p.SSP.MaxInFlight(),
		},
		Requests: state, Shape: shapeOf(p.SSP), LastMinute: row.LastMinute, OutcomesLastMinute: v.history.outcomesOf(p.SSP, state.Outcomes), URLs: p.Config.ShownURLs(), ReuseRatio: reuseRatio(&snap),
		Now:            append(now, advice.ForAuto(&snap, &o)...),
		AddressChanges: p.AddressChanges(),
		Advice:         fit, IdleAdvice: advice.ForIdleTimeout(&snap, &o),
	}
}

// Cold names the SSPs for which the start waits, since they have not had min_idle connections yet, each with its last error.
// It names at most five SSPs.
func (v *Views) Cold() string {
	var all []string
	for _, p := range v.versions.Current().Parts {
		s := p.SSP.Pool().Snapshot()
		if s.Warm {
			continue
		}
		open := 0
		for i := range s.Idle {
			open += s.Idle[i] + s.Active[i]
		}
		text := fmt.Sprintf("%s has %d of %d connections", p.Config.Name, open, p.SSP.Pool().Options().MinIdle)
		if s.LastDialError != "" {
			text += ": " + lastPart(s.LastDialError)
		}
		all = append(all, text)
	}
	return listed(all)
}

// reuseRatio computes the same ratio as the recording rules. It is 0 while warm-up has opened more
// connections than requests have acquired places.
func reuseRatio(s *pool.Snapshot) float64 {
	if s.Lent == 0 {
		return 0
	}
	return max(0, 1-float64(s.Opened)/float64(s.Lent))
}

func connectionsView(s *pool.Snapshot) map[string]map[string]int {
	all := make(map[string]map[string]int)
	for p := exchange.HTTP1; p < exchange.Protocols; p++ {
		all[p.String()] = map[string]int{"idle": s.Idle[p], "active": s.Active[p], "draining": s.Draining[p]}
	}
	return all
}
