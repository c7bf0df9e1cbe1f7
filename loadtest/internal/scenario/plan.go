package scenario

import (
	"adbuffer/loadtest/internal/load"
)

// Plan returns the load of s as a plan without an address.
func (s *Scenario) Plan() load.Plan {
	l := s.Load
	p := load.Plan{Protocol: load.Protocol(l.Protocol), Depth: l.Depth, Open: l.Mode == "open",
		Poisson:     l.Arrivals == "poisson",
		Connections: l.Connections, Threads: l.Threads, Timeout: l.Timeout, Requests: l.Requests,
		Statuses: s.Expect.Status, Echo: s.Expect.Echo,
		Seed: l.Seed, Tick: tick, Insecure: s.Target.Insecure, Templates: s.Requests}
	for _, phase := range l.Phases {
		out := load.Phase{Name: phase.Name, Duration: phase.For, BurstEvery: phase.Burst.Every,
			BurstSize:  phase.Burst.Requests,
			Unrecorded: phase.Record != nil && !*phase.Record}
		if phase.Rate != nil {
			out.From, out.To = float64(*phase.Rate), float64(*phase.Rate)
		}
		if phase.From != nil && phase.To != nil {
			out.From, out.To = float64(*phase.From), float64(*phase.To)
		}
		p.Phases = append(p.Phases, out)
	}
	return p
}
