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

// Cold sends 600 requests at once to an adbuffer that has just started, and
// counts the connections that it opens for them.
func Cold(ctx context.Context, e *engine.Env) (*results.Report, error) {
	r := e.Report("cold", "600 requests at once, cold",
		"How many connections does a cold start cost the SSP, and how long do its first requests wait?")
	n := e.Count(600, 600)
	t := results.Table{Title: fmt.Sprintf("%d requests at once to an SSP that takes 20 ms", n),
		Columns: []string{"proxy", "answered", "failed", "SSP connections", "TLS handshakes", "p50 ms", "p99 ms", "max ms"}}
	chart := results.Chart{Title: "Connections that the SSP saw", Kind: "bar", Y: "connections", Series: []results.Series{{Name: "connections"}}}
	slow := results.Chart{Title: "Slowest answer of the cold start", Kind: "bar", Y: "ms", Series: []results.Series{{Name: "max"}}}
	var verdicts []results.Verdict
	bin, err := e.Rig.BuildPackage(ctx, "./loadtest/peers/prototypes")
	if err != nil {
		return nil, err
	}
	for _, c := range []coldStart{
		{"adbuffer, http2", sspsim.TLSHTTP2, "http2", "", 4},
		{"adbuffer, http2, warmed (min_idle 2)", sspsim.TLSHTTP2, "http2", "min_idle: 2", 4},
		{"adbuffer, auto", sspsim.TLSAuto, "auto", "", 4},
		{"adbuffer, http1, max_conns 256", sspsim.HTTP1, "http1", "max_conns: 256", 256},
		{"net/http, http2, no cap (its default)", sspsim.TLSHTTP2, "", "", 0},
	} {
		e.Say("cold: %s", c.name)
		s, err := e.Rig.StartSSP(rig.SSPOptions{Name: c.name, Protocol: c.ssp, Behaviour: sspsim.Behaviour{Latency: sspsim.Constant(20 * time.Millisecond)}, Cores: e.LoadCores})
		if err != nil {
			return nil, err
		}
		addr, process, err := c.start(ctx, e, s, bin)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		m, err := e.Generate(ctx, engine.ClosedLoop(addr, n, n, 0, page("page", "/fillbuffer")), 0)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		seen, err := s.Counters()
		if err != nil {
			return nil, err
		}
		process.Stop()
		s.Stop()
		doubts := failureDoubts(m.Whole.Failed, m.Whole.Offered)
		r.Doubt(c.name, doubts)
		t.Add(doubts, c.name, m.Whole.Answered, m.Whole.Failed, seen.Connections, seen.Handshakes, m.Whole.Latency.P50, m.Whole.Latency.P99, m.Whole.Latency.Max)
		label := results.Mark(c.name, doubts)
		chart.Labels, slow.Labels = append(chart.Labels, label), append(slow.Labels, label)
		chart.Series[0].Values = append(chart.Series[0].Values, float64(seen.Connections))
		slow.Series[0].Values = append(slow.Series[0].Values, m.Whole.Latency.Max)
		if c.limit > 0 {
			verdicts = append(verdicts, results.Verdict{Promise: c.name + ": a cold start opens no more connections than the pool may have, and loses nothing", Held: seen.Connections <= c.limit && m.Whole.Answered == uint64(n),
				Words: fmt.Sprintf("%d connections of %d allowed, %d of %d requests answered, the slowest after %.0f ms.", seen.Connections, c.limit, m.Whole.Answered, n, m.Whole.Latency.Max)})
		}
	}
	r.Notes = append(r.Notes, "A pool without a cap was seen to open 709 to 1 285 HTTP/2 connections for 600 requests, in 0.55 to 1.98 s.")
	r.Verdicts, r.Tables, r.Charts = verdicts, []results.Table{t}, []results.Chart{chart, slow}
	return e.Done(r), nil
}

type coldStart struct {
	name     string
	ssp      sspsim.Protocol
	protocol string // of adbuffer; "" is net/http's reverse proxy
	pool     string
	limit    uint64 // of connections
}

func (c coldStart) start(ctx context.Context, e *engine.Env, s *rig.SSP, reverseProxy string) (string, *rig.Process, error) {
	if c.protocol != "" {
		a, err := e.Rig.StartAdbuffer(ctx, e.Adbuffer, engine.Config{Deadline: "2s", SSPs: []engine.SSPConfig{{Name: "ssp", URL: s.URL, Protocol: c.protocol, CAFile: s.CAFile, Pool: join(c.pool, "max_pending: 1000, pending_timeout: 2s")}}}.YAML(), e.ProxyCores)
		if err != nil {
			return "", nil, err
		}
		return a.Addr, a.Process, nil
	}
	port, err := rig.FreePort()
	if err != nil {
		return "", nil, err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	p, err := e.Rig.Start(rig.Command{Name: "reverseproxy", Argv: []string{reverseProxy, "reverseproxy", "-listen", addr, "-upstream", "https://" + s.Addr, "-ca", s.CAFile, "-http2"}, Cores: e.ProxyCores})
	if err != nil {
		return "", nil, err
	}
	return addr, p, p.AwaitPort(ctx, addr, 10*time.Second)
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + ", " + b
}

func failureDoubts(failed, offered uint64) []string {
	if offered > 0 && failed*100 > offered {
		return []string{fmt.Sprintf("%d of %d requests failed", failed, offered)}
	}
	return nil
}
