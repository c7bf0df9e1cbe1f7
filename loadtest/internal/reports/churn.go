package reports

import (
	"context"
	"fmt"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/engine"
)

// churning is a way for an SSP to close connections that adbuffer keeps.
type churning struct {
	name        string
	protocol    sspsim.Protocol
	connections sspsim.Connections
}

// Churn loads SSPs that close their connections early, without a word, and
// counts what is lost.
func Churn(ctx context.Context, e *engine.Env) (*results.Report, error) {
	r := e.Report("churn", "SSPs that close connections",
		"Are requests lost when the SSP closes the connections that are kept to it?")
	length := e.Time(20*time.Second, 4*time.Second)
	t := results.Table{Title: fmt.Sprintf("%.0f s, half GET, half POST", length.Seconds()),
		Columns: []string{"the SSP closes", "method", "offered", "lost", "p99 ms", "SSP connections", "retries (stale)", "stale connections found"}}
	lost := map[string]uint64{}
	offered := map[string]uint64{}
	chart := results.Chart{Title: "Requests lost to closed connections", Kind: "bar", Y: "requests", Series: []results.Series{{Name: "GET"}, {Name: "POST"}}}
	for _, c := range []churning{
		{"after 100 requests, announced", sspsim.HTTP1, sspsim.Connections{MaxRequests: 100, Announce: true}},
		{"after 100 requests, without a word", sspsim.HTTP1, sspsim.Connections{MaxRequests: 100}},
		{"after 50 ms idle", sspsim.HTTP1, sspsim.Connections{IdleTimeout: 50 * time.Millisecond}},
		{"after 1 s idle", sspsim.HTTP1, sspsim.Connections{IdleTimeout: time.Second}},
		{"HTTP/2: GOAWAY after 100 requests", sspsim.TLSHTTP2, sspsim.Connections{MaxRequests: 100, Announce: true}},
	} {
		e.Say("churn: the SSP closes %s", c.name)
		if err := churn(ctx, e, r, &t, &chart, c, length, lost, offered); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	r.Verdicts = []results.Verdict{
		{Promise: "no GET is lost to a connection that the SSP closed", Held: lost["GET"] == 0, Words: fmt.Sprintf("%d of %s lost.", lost["GET"], results.Number(float64(offered["GET"])))},
		{Promise: "at most one POST in 1 000 is lost to one: it is not sent again where the SSP may have seen it", Held: lost["POST"]*1000 <= offered["POST"],
			Words: fmt.Sprintf("%d of %s lost.", lost["POST"], results.Number(float64(offered["POST"])))},
	}
	r.Tables, r.Charts = []results.Table{t}, []results.Chart{chart}
	return e.Done(r), nil
}

func churn(ctx context.Context, e *engine.Env, r *results.Report, t *results.Table, chart *results.Chart, c churning, length time.Duration, lost, offered map[string]uint64) error {
	b := sspsim.Behaviour{Latency: sspsim.Lognormal(5*time.Millisecond, 20*time.Millisecond), Response: sspsim.Response{Echo: true}, Connections: c.connections}
	s, err := e.Rig.StartSSP(rig.SSPOptions{Name: c.name, Protocol: c.protocol, Behaviour: b, Cores: e.LoadCores})
	if err != nil {
		return err
	}
	defer s.Stop()
	protocol := "http1"
	if c.protocol != sspsim.HTTP1 {
		protocol = "http2"
	}
	proxy, err := e.Rig.StartAdbuffer(ctx, e.Adbuffer, engine.Config{Deadline: "1s", SSPs: []engine.SSPConfig{{Name: "ssp", URL: s.URL, Protocol: protocol, CAFile: s.CAFile}}}.YAML(), e.ProxyCores)
	if err != nil {
		return err
	}
	defer proxy.Stop()
	plan := engine.OpenLoop(proxy.Addr, 128, 200, 0, length, page("GET", "/fillbuffer"), bid("POST", "/fillbuffer"))
	plan.Poisson, plan.Echo = true, true
	// Bursts leave connections idle between them.
	plan.Phases[0].BurstEvery, plan.Phases[0].BurstSize = 1300*time.Millisecond, 60
	m, err := e.GenerateCalmly(ctx, plan, proxy.PID)
	if err != nil {
		return err
	}
	seen, err := s.Counters()
	if err != nil {
		return err
	}
	retries, err := proxy.Metric("adbuffer_retries_total", `kind="stale"`)
	if err != nil {
		return err
	}
	stale, err := proxy.Metric("adbuffer_pool_stale_connections_total")
	if err != nil {
		return err
	}
	doubts := engine.GeneratorDoubts(m.Result)
	r.Doubt(c.name, doubts)
	chart.Labels = append(chart.Labels, results.Mark(c.name, doubts))
	for i, class := range m.Whole.Classes {
		lost[class.Name] += class.Failed
		offered[class.Name] += class.Offered
		cells := []any{c.name, class.Name, class.Offered, failures(class), class.Latency.P99, "", "", ""}
		if i == 0 {
			cells = []any{c.name, class.Name, class.Offered, failures(class), class.Latency.P99, seen.Connections, retries, stale}
		}
		t.Add(doubts, cells...)
		chart.Series[i].Values = append(chart.Series[i].Values, float64(class.Failed))
	}
	return nil
}
