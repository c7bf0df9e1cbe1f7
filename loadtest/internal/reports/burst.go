package reports

import (
	"context"
	"fmt"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/engine"
)

// Burst goes from nothing to the peak within two seconds, as a live ad break
// does, on a cold adbuffer and on a warmed one.
func Burst(ctx context.Context, e *engine.Env) (*results.Report, error) {
	r := e.Report("burst", "From nothing to the peak in two seconds",
		"Do the first requests of an ad break suffer, cold and warmed?")
	peak := float64(e.Count(4000, 1000))
	if e.Scale > 1 {
		peak = 4000 // what one core is for is measured elsewhere
	}
	hold := e.Time(10*time.Second, 3*time.Second)
	t := results.Table{Title: fmt.Sprintf("0 to %s requests/s in 2 s, then %.0f s; the SSPs take 30 ms (p99 120 ms), deadline 1 s", results.Number(peak), hold.Seconds()),
		Columns: []string{"start", "upstream", "phase", "offered", "answered", "failed", "p50 ms", "p99 ms", "p99.9 ms", "SSP connections"}}
	for _, c := range []burst{
		{"cold", "http1", sspsim.HTTP1, "max_conns: 1024, max_pending: 2000, pending_timeout: 500ms"},
		{"warmed", "http1", sspsim.HTTP1, "max_conns: 1024, min_idle: 256, max_pending: 2000, pending_timeout: 500ms"},
		{"cold", "http2", sspsim.TLSHTTP2, "max_conns: 8, max_http2_conns: 8, max_pending: 2000, pending_timeout: 500ms"},
		{"warmed", "http2", sspsim.TLSHTTP2, "max_conns: 8, max_http2_conns: 8, min_idle: 4, max_pending: 2000, pending_timeout: 500ms"},
	} {
		name := c.start + ", " + c.protocol
		e.Say("burst: %s", name)
		m, connections, err := c.run(ctx, e, peak, hold)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		doubts := engine.GeneratorDoubts(m.Result)
		r.Doubt(name, doubts)
		for _, p := range m.Phases {
			t.Add(doubts, c.start, c.protocol, p.Name, p.Offered, p.Answered, p.Failed, p.Latency.P50, p.Latency.P99, p.Latency.P999, connections)
		}
		ramp := m.Phases[0]
		r.Verdicts = append(r.Verdicts, results.Verdict{Promise: name + ": at most 1 in 1 000 requests fails while the load rises from nothing to the peak", Held: ramp.Failed*1000 <= ramp.Offered,
			Words: fmt.Sprintf("%s, p99 %.0f ms, then at the peak %s, p99 %.0f ms.", failures(ramp), ramp.Latency.P99, failures(m.Phases[1]), m.Phases[1].Latency.P99), Doubted: len(doubts) > 0})
		r.Charts = append(r.Charts, timeline(results.Mark("Burst: "+name, doubts), m.Timeline))
	}
	r.Tables = []results.Table{t}
	return e.Done(r), nil
}

type burst struct {
	start, protocol string
	ssp             sspsim.Protocol
	pool            string
}

func (c burst) run(ctx context.Context, e *engine.Env, peak float64, hold time.Duration) (engine.Measured, uint64, error) {
	s, err := e.Rig.StartSSP(rig.SSPOptions{Name: "ssp", Protocol: c.ssp, Behaviour: realistic(30*time.Millisecond, 120*time.Millisecond), Cores: e.LoadCores})
	if err != nil {
		return engine.Measured{}, 0, err
	}
	defer s.Stop()
	proxy, err := e.Rig.StartAdbuffer(ctx, e.Adbuffer, engine.Config{Deadline: "1s", SSPs: []engine.SSPConfig{{Name: "ssp", URL: s.URL, Protocol: c.protocol, CAFile: s.CAFile, Pool: c.pool}}}.YAML(), e.ProxyCores)
	if err != nil {
		return engine.Measured{}, 0, err
	}
	defer proxy.Stop()
	plan := engine.OpenLoop(proxy.Addr, 1024, 0, 0, hold, page("page", "/fillbuffer"))
	plan.Phases = []load.Phase{{Name: "rise", Duration: 2 * time.Second, From: 0, To: peak}, {Name: "peak", Duration: hold, From: peak, To: peak}}
	plan.Poisson, plan.Statuses, plan.Echo, plan.Tick = true, []int{200, 204}, true, 250*time.Millisecond
	m, err := e.GenerateCalmly(ctx, plan, proxy.PID)
	if err != nil {
		return m, 0, err
	}
	seen, err := s.Counters()
	return m, seen.Connections, err
}
