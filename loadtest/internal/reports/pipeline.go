package reports

import (
	"context"
	"fmt"
	"time"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/engine"
)

// Pipeline sends 10 000 GETs in three ways: pipelined on 100 connections, by 100
// workers on keep-alive connections, and all at once.
func Pipeline(ctx context.Context, e *engine.Env) (*results.Report, error) {
	r := e.Report("pipeline", "Pipelining",
		"What does it save to send requests without waiting for answers, and can applications that do not pipeline have it from adbuffer?")
	conns := e.Count(100, 100)
	each := 100
	n := conns * each
	behaviour := steady("5ms")
	// Requests that arrive together wait together, as a server with workers has it.
	behaviour.Connections.PipelineOverlap = true
	s, err := e.Rig.StartSSP(rig.SSPOptions{Name: "ssp", Behaviour: behaviour})
	if err != nil {
		return nil, err
	}
	t := results.Table{Title: fmt.Sprintf("%s GETs to an SSP that takes 5 ms", results.Number(float64(n))),
		Columns: []string{"way of sending", "path", "seconds", "requests/s", "client CPU s", "client connections", "SSP connections", "p99 ms"}}
	t.AddTheirs("100 pipelines of 100 requests", "direct", "~5", "", "low", "100", "", "")
	t.AddTheirs("100 workers, keep-alive", "direct", "~25", "", "saturated", "100", "", "")
	t.AddTheirs("10 000 at once", "direct", "> 60", "", "saturated", "", "", "")

	ways := []struct {
		name string
		set  func(*load.Plan)
	}{
		{fmt.Sprintf("%d pipelines of %d requests", conns, each), func(p *load.Plan) { p.Protocol, p.Depth = load.Pipelined, each }},
		{fmt.Sprintf("%d workers, keep-alive", conns), func(*load.Plan) {}},
		{fmt.Sprintf("%d at once", n), func(p *load.Plan) { p.Connections = n }},
	}
	chart := results.Chart{Title: fmt.Sprintf("Seconds for %s requests", results.Number(float64(n))), Kind: "bar", Y: "seconds"}
	pool := fmt.Sprintf("max_conns: %d, max_pending: %d, pending_timeout: 30s", conns, n)
	paths := []struct {
		name, protocol, pool string
	}{
		{"direct", "", ""},
		{"adbuffer, pool of " + fmt.Sprint(conns), "http1", pool},
		{"adbuffer, pipelined to the SSP", "http1-pipelined", pool + ", pipeline_depth: 100"},
	}
	rates := map[string]float64{}
	for _, way := range ways {
		chart.Labels = append(chart.Labels, way.name)
	}
	var doubted []string
	for _, path := range paths {
		series := results.Series{Name: path.name}
		for _, way := range ways {
			m, connections, err := pipelineRun(ctx, e, s, path.protocol, path.pool, func(addr string) load.Plan {
				p := engine.ClosedLoop(addr, conns, n, 0, engine.Get("/fillbuffer?pub=1"))
				way.set(&p)
				return p
			})
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", way.name, path.name, err)
			}
			r.Doubt(way.name+", "+path.name, m.Doubts)
			doubted = append(doubted, m.Doubts...)
			t.Add(m.Doubts, way.name, path.name, m.Whole.Seconds, m.Whole.Rate, m.Generator.CPUSeconds, m.Connections.TCP, connections, m.Whole.Latency.P99)
			series.Values = append(series.Values, m.Whole.Seconds)
			rates[way.name+path.name] = m.Whole.Rate
		}
		chart.Series = append(chart.Series, series)
	}
	chart.Title = results.Mark(chart.Title, doubted)
	pooled, pipelined := rates[ways[2].name+paths[1].name], rates[ways[2].name+paths[2].name]
	r.Verdicts = []results.Verdict{{Promise: "requests of clients that do not pipeline are pipelined to the SSP, and gain by it",
		Held: pipelined > pooled, Words: fmt.Sprintf("All at once through adbuffer: %s requests/s over a pool of %d connections, %s/s over as many pipelines.", results.Number(pooled), conns, results.Number(pipelined))}}
	r.Notes = []string{"Answers on one client connection come in order, one after the other: a client that pipelines into adbuffer saves round trips, not the SSP's time."}
	r.Tables, r.Charts = []results.Table{t}, []results.Chart{chart}
	return e.Done(r), nil
}

// pipelineRun loads the SSP, or an adbuffer in front of it if protocol is not "",
// and returns how many connections the SSP saw.
func pipelineRun(ctx context.Context, e *engine.Env, s *rig.SSP, protocol, pool string, plan func(addr string) load.Plan) (engine.Measured, uint64, error) {
	addr := s.Addr
	if protocol != "" {
		proxy, err := e.Rig.StartAdbuffer(ctx, e.Adbuffer, engine.Config{Deadline: "30s", SSPs: []engine.SSPConfig{{Name: "ssp", URL: s.URL, Protocol: protocol, Pool: pool}}}.YAML(), "")
		if err != nil {
			return engine.Measured{}, 0, err
		}
		defer proxy.Stop()
		addr = proxy.Addr
	}
	if err := s.CloseConnections(); err != nil {
		return engine.Measured{}, 0, err
	}
	if err := s.Reset(); err != nil {
		return engine.Measured{}, 0, err
	}
	p := plan(addr)
	p.Timeout = time.Minute
	m, err := e.Generate(ctx, p, 0)
	if err != nil {
		return m, 0, err
	}
	c, err := s.Counters()
	return m, c.Connections, err
}
