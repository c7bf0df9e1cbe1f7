package tests

import (
	"fmt"
	"time"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/stage"
)

// keepAlive sends 500 requests one after the other. It measures the cost of a connection per request,
// and counts the handshakes on both sides of adbuffer.
func keepAlive(*stage.Env) *stage.Test {
	const n = 500
	t := &stage.Test{Kind: "keepalive", Title: "Keep-alive against a connection per request",
		Question: "What does it cost an application to open a connection for every request, and how much of that remains behind adbuffer?",
		Tables: []stage.Table{{Title: fmt.Sprintf("%d requests one after the other", n), Heads: []string{"client", "path", "connection"},
			Columns: []stage.Column{{Head: "seconds", Value: "seconds"}, {Head: "client's TCP handshakes", Value: "client.connections"}, {Head: "SSP's TCP handshakes", Value: "ssp.connections"}},
			Theirs: [][]any{{"curl", "direct", "close", "1.27", "500", "500"}, {"curl", "direct", "keep-alive", "0.56", "1", "1"},
				{"Node, no agent", "direct", "close", "2.20", "500", "500"}, {"Node, keep-alive agent", "direct", "keep-alive", "0.90", "1", "1"}}}},
		Charts: []stage.Chart{{Title: fmt.Sprintf("Seconds for %d requests", n), Y: "seconds", Series: []stage.Series{{Value: "seconds"}}},
			{Title: "TCP handshakes that the SSP saw", Y: "handshakes", Series: []stage.Series{{Value: "ssp.connections"}}}},
		Promises: []stage.Promise{{Text: "an application that opens a connection per request gets keep-alive to the SSP anyway", If: "max:spared <= 1",
			Words: fmt.Sprintf("Of %d requests through adbuffer, each on a connection of its own, the SSP saw at most {max:spared} TCP handshake(s) a client.", n)}},
	}
	for _, client := range []string{"generator", "curl", "Node"} {
		for _, path := range []string{"direct", "adbuffer"} {
			for _, connection := range []string{"close", "keep-alive"} {
				server := stage.Server{Program: path, Anywhere: true}
				if path == "adbuffer" {
					server.Program = ""
				}
				close := connection == "close"
				trial := stage.Trial{Name: client + ", " + path + ", " + connection, Cells: []any{client, path, connection}, Label: client, Series: path + ", " + connection,
					SSPs: []*stage.SSP{{Name: "ssp", Protocol: "http1"}}, Server: server}
				trial.Derive = func(s *stage.Sample) {
					if path == "adbuffer" && close {
						s.Values["spared"] = s.Values["ssp.connections"]
					}
					if s.Values["answered"] != n || s.Values["ssp.answered"] != n {
						s.Doubts = append(s.Doubts, fmt.Sprintf("%.0f of %d requests succeeded, the SSP sent %.0f responses", s.Values["answered"], n, s.Values["ssp.answered"]))
					}
				}
				drive := stage.Sequence(client, "/fillbuffer?pub=1", n, close)
				if trial.Tool = map[string]string{"curl": "curl", "Node": "node"}[client]; trial.Tool == "" {
					plan := stage.ClosedLoop(1, n, 0, small)
					if close {
						plan.Protocol = load.Close
					}
					drive = stage.Generate(plan, false)
				}
				trial.Steps = []stage.Step{{Before: fresh, Load: drive}}
				t.Trials = append(t.Trials, trial)
			}
		}
	}
	return t
}

// pipeline sends 10 000 GETs in three ways: pipelined on 100 connections, by 100 workers on
// keep-alive connections, and all at once.
func pipeline(e *stage.Env) *stage.Test {
	conns, each := e.Count(100, 100), 100
	n := conns * each
	behaviour := steady(5 * time.Millisecond)
	// The SSP processes pipelined requests at the same time, as a server with workers does.
	behaviour.Connections.PipelineOverlap = true
	pool := fmt.Sprintf("max_conns: %d, max_pending: %d, pending_timeout: 30s", conns, n)
	pooled, pipelined := fmt.Sprintf("adbuffer, pool of %d", conns), "adbuffer, pipelined to the SSP"
	atOnce := fmt.Sprintf("%d at once", n)
	t := &stage.Test{Kind: "pipeline", Title: "Pipelining",
		Question: "What does it save to send requests without waiting for responses, and can applications that do not pipeline have it from adbuffer?",
		Notes:    []string{"Responses on one client connection come in order, one after the other: a client that pipelines into adbuffer saves round trips, not the SSP's time."},
		Tables: []stage.Table{{Title: fmt.Sprintf("%d GETs to an SSP that takes 5 ms", n), Heads: []string{"way of sending", "path"},
			Columns: []stage.Column{{Head: "seconds", Value: "seconds"}, {Head: "requests/s", Value: "rate"}, {Head: "client CPU s", Value: "client.cpu"}, {Head: "client connections", Value: "client.connections"}, {Head: "SSP connections", Value: "ssp.connections"}, {Head: "p99 ms", Value: "p99"}},
			Theirs:  [][]any{{"100 pipelines of 100 requests", "direct", "~5", "", "low", "100", "", ""}, {"100 workers, keep-alive", "direct", "~25", "", "saturated", "100", "", ""}, {"10 000 at once", "direct", "> 60", "", "saturated", "", "", ""}}}},
		Charts: []stage.Chart{{Title: fmt.Sprintf("Seconds for %d requests", n), Y: "seconds", Series: []stage.Series{{Value: "seconds"}}}},
		Promises: []stage.Promise{{Text: "requests of clients that do not pipeline are pipelined to the SSP, and gain by it", If: atOnce + ", " + pipelined + ":rate > " + atOnce + ", " + pooled + ":rate",
			Words: fmt.Sprintf("All at once through adbuffer: {%s, %s:rate} requests/s over a pool of %d connections, {%s, %s:rate}/s over as many pipelines.", atOnce, pooled, conns, atOnce, pipelined)}},
	}
	for _, path := range []struct{ name, program, protocol, pool string }{{"direct", "direct", "", ""}, {pooled, "", "http1", pool}, {pipelined, "", "http1-pipelined", pool + ", pipeline_depth: 100"}} {
		for _, way := range []struct {
			name string
			set  func(*load.Plan)
		}{
			{fmt.Sprintf("%d pipelines of %d requests", conns, each), func(p *load.Plan) { p.Protocol, p.Depth = load.Pipelined, each }},
			{fmt.Sprintf("%d workers, keep-alive", conns), func(*load.Plan) {}},
			{atOnce, func(p *load.Plan) { p.Connections = n }},
		} {
			plan := stage.ClosedLoop(conns, n, 0, small)
			plan.Timeout = time.Minute
			way.set(&plan)
			t.Trials = append(t.Trials, stage.Trial{Name: way.name + ", " + path.name, Cells: []any{way.name, path.name}, Label: way.name, Series: path.name,
				// 10 000 new clients keep adbuffer busy for longer than the default timeouts.connect.
				SSPs:   []*stage.SSP{{Name: "ssp", Protocol: path.protocol, Pool: path.pool, Behaviour: behaviour, More: []string{"timeouts: {connect: 5s}"}}},
				Server: stage.Server{Program: path.program, Anywhere: true, Config: stage.Config{Deadline: "30s"}}, Steps: []stage.Step{{Load: stage.Generate(plan, false)}}})
		}
	}
	return t
}
