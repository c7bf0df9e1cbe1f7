package advice

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"adbuffer/internal/machine/capacity"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/ssp/pool"
)

// ObservePool returns a pool's load of the last minute.
func ObservePool(s *pool.Snapshot, o *pool.Options) Observation {
	return Observation{
		name: o.SSP, protocol: s.Protocol.String(), rate: s.Need.ArrivalsPerSecond, hold: seconds(s.Need.HoldSeconds),
		streams: o.MaxStreams, depth: o.PipelineDepth,
	}
}

// GroupWarnings warns about each priority group that could not carry an observed load alone, if all
// groups of higher priority failed. An SSP without load in the last minute gets no warning.
func GroupWarnings(cfg *config.Config, all []Observation) (warnings []config.Warning) {
	in := Input{PlanInput: capacity.DefaultPlanInput()}
	in.Replicas = 1
	for i := range cfg.SSPs {
		s := &cfg.SSPs[i]
		at := slices.IndexFunc(all, func(o Observation) bool { return o.name == s.Name })
		if at < 0 || all[at].rate <= 0 || all[at].hold <= 0 {
			continue
		}
		p := all[at].planned(&in)
		more, _ := p.groupWarnings(s, i) // after an error, the observed load is not enough for a plan
		warnings = append(warnings, more...)
	}
	return warnings
}

// groupWarnings compares the connections that each priority group except the first can hold with those that the
// plan expects. s is cfg.SSPs[i]. The error is that of capacity.Plan.
func (p *planned) groupWarnings(s *config.SSP, i int) (warnings []config.Warning, err error) {
	p.result, err = capacity.Plan(p.in)
	if err != nil {
		return nil, err
	}
	groups := make(map[int]int) // endpoints by priority
	for _, e := range s.Endpoints {
		groups[e.Priority]++
	}
	setting, need := p.sizeSetting()
	for _, priority := range slices.Sorted(maps.Keys(groups))[1:] {
		holds, raise := p.groupHolds(s, groups[priority], setting)
		if holds >= need {
			continue
		}
		warnings = append(warnings, config.Warning{Path: fmt.Sprintf("ssps[%d].endpoints", i), Text: fmt.Sprintf(
			"if the endpoints before it fail, priority %d (%s) can hold %s, and plan expects %d for %s requests/s × %s; raise %s",
			priority, count(groups[priority], "endpoint"), count(holds, "connection"), need, Number(p.result.Rate), millis(p.result.MeanHold.Seconds()), raise)})
	}
	return warnings, nil
}

// groupHolds returns how many connections a group of n endpoints can hold, and the setting that
// bounds them: the pool's limit, or the ports towards its endpoints.
func (p *planned) groupHolds(s *config.SSP, n int, setting string) (holds int, raise string) {
	holds, raise = s.Pool.MaxConns, "pool.max_conns"
	if setting == "max_http2_conns" && s.Pool.MaxHTTP2Conns < holds {
		holds, raise = s.Pool.MaxHTTP2Conns, "pool.max_http2_conns"
	}
	// A connection that closes because of its age keeps its port for a minute.
	ports := float64(p.in.PortsPerAddress * n * max(1, len(s.SourceAddresses)))
	if age := s.Pool.MaxAge; age > 0 {
		ports /= 1 + float64(time.Minute)/float64(age)
	}
	if int(ports) < holds {
		holds, raise = int(ports), "the number of its endpoints, or of source_addresses: each adds its ports"
	}
	return holds, raise
}
