package tests

import (
	"fmt"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/engine"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
)

// keepAlive counts what a connection per request costs, and which side pays for it with
// adbuffer in between: 500 requests one after the other.
func keepAlive(*engine.Env) *engine.Test {
	const n = 500
	t := &engine.Test{Kind: "keepalive", Title: "Keep-alive against a connection per request",
		Question: "What does an application pay that opens a connection for every request, and what is left of it behind adbuffer?",
		Tables: []engine.Table{{Title: fmt.Sprintf("%d requests one after the other", n), Heads: []string{"client", "path", "connection"},
			Columns: []engine.Column{{Head: "seconds", Value: "seconds"}, {Head: "client's TCP handshakes", Value: "client.connections"}, {Head: "SSP's TCP handshakes", Value: "ssp.connections"}},
			Theirs: [][]any{{"curl", "direct", "close", "1.27", "500", "500"}, {"curl", "direct", "keep-alive", "0.56", "1", "1"},
				{"Node, no agent", "direct", "close", "2.20", "500", "500"}, {"Node, keep-alive agent", "direct", "keep-alive", "0.90", "1", "1"}}}},
		Charts: []engine.Chart{{Title: fmt.Sprintf("Seconds for %d requests", n), Y: "seconds", Series: []engine.Series{{Value: "seconds"}}},
			{Title: "TCP handshakes that the SSP saw", Y: "handshakes", Series: []engine.Series{{Value: "ssp.connections"}}}},
		Promises: []engine.Promise{{Text: "an application that opens a connection per request gets keep-alive to the SSP anyway", If: "max:spared <= 1",
			Words: fmt.Sprintf("Of %d requests through adbuffer, each on a connection of its own, the SSP saw at most {max:spared} TCP handshake(s) a client.", n)}},
	}
	for _, client := range []string{"generator", "curl", "Node"} {
		for _, path := range []string{"direct", "adbuffer"} {
			for _, connection := range []string{"close", "keep-alive"} {
				server := engine.Server{Program: path, Anywhere: true}
				if path == "adbuffer" {
					server.Program = ""
				}
				close := connection == "close"
				trial := engine.Trial{Name: client + ", " + path + ", " + connection, Cells: []any{client, path, connection}, Label: client, Series: path + ", " + connection,
					SSPs: []*engine.SSP{{Name: "ssp", Protocol: "http1"}}, Server: server}
				trial.Derive = func(s *engine.Sample) {
					if path == "adbuffer" && close {
						s.Values["spared"] = s.Values["ssp.connections"]
					}
					if s.Values["answered"] != n || s.Values["ssp.answered"] != n {
						s.Doubts = append(s.Doubts, fmt.Sprintf("%.0f of %d requests were answered, the SSP answered %.0f", s.Values["answered"], n, s.Values["ssp.answered"]))
					}
				}
				drive := engine.Sequence(client, "/fillbuffer?pub=1", n, close)
				if trial.Tool = map[string]string{"curl": "curl", "Node": "node"}[client]; trial.Tool == "" {
					plan := engine.ClosedLoop(1, n, 0, small)
					if close {
						plan.Protocol = load.Close
					}
					drive = engine.Generate(plan, false)
				}
				trial.Steps = []engine.Step{{Before: fresh, Load: drive}}
				t.Trials = append(t.Trials, trial)
			}
		}
	}
	return t
}

// pipeline sends 10 000 GETs in three ways: pipelined on 100 connections, by 100 workers on
// keep-alive connections, and all at once.
func pipeline(e *engine.Env) *engine.Test {
	conns, each := e.Count(100, 100), 100
	n := conns * each
	behaviour := steady(5 * time.Millisecond)
	// Requests that arrive together wait together, as a server with workers has it.
	behaviour.Connections.PipelineOverlap = true
	pool := fmt.Sprintf("max_conns: %d, max_pending: %d, pending_timeout: 30s", conns, n)
	pooled, pipelined := fmt.Sprintf("adbuffer, pool of %d", conns), "adbuffer, pipelined to the SSP"
	atOnce := fmt.Sprintf("%d at once", n)
	t := &engine.Test{Kind: "pipeline", Title: "Pipelining",
		Question: "What does it save to send requests without waiting for answers, and can applications that do not pipeline have it from adbuffer?",
		Notes:    []string{"Answers on one client connection come in order, one after the other: a client that pipelines into adbuffer saves round trips, not the SSP's time."},
		Tables: []engine.Table{{Title: fmt.Sprintf("%d GETs to an SSP that takes 5 ms", n), Heads: []string{"way of sending", "path"},
			Columns: []engine.Column{{Head: "seconds", Value: "seconds"}, {Head: "requests/s", Value: "rate"}, {Head: "client CPU s", Value: "client.cpu"}, {Head: "client connections", Value: "client.connections"}, {Head: "SSP connections", Value: "ssp.connections"}, {Head: "p99 ms", Value: "p99"}},
			Theirs:  [][]any{{"100 pipelines of 100 requests", "direct", "~5", "", "low", "100", "", ""}, {"100 workers, keep-alive", "direct", "~25", "", "saturated", "100", "", ""}, {"10 000 at once", "direct", "> 60", "", "saturated", "", "", ""}}}},
		Charts: []engine.Chart{{Title: fmt.Sprintf("Seconds for %d requests", n), Y: "seconds", Series: []engine.Series{{Value: "seconds"}}}},
		Promises: []engine.Promise{{Text: "requests of clients that do not pipeline are pipelined to the SSP, and gain by it", If: atOnce + ", " + pipelined + ":rate > " + atOnce + ", " + pooled + ":rate",
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
			plan := engine.ClosedLoop(conns, n, 0, small)
			plan.Timeout = time.Minute
			way.set(&plan)
			t.Trials = append(t.Trials, engine.Trial{Name: way.name + ", " + path.name, Cells: []any{way.name, path.name}, Label: way.name, Series: path.name,
				SSPs:   []*engine.SSP{{Name: "ssp", Protocol: path.protocol, Pool: path.pool, Behaviour: behaviour}},
				Server: engine.Server{Program: path.program, Anywhere: true, Config: engine.Config{Deadline: "30s"}}, Steps: []engine.Step{{Load: engine.Generate(plan, false)}}})
		}
	}
	return t
}

// cold counts the connections that a cold start opens.
func cold(*engine.Env) *engine.Test {
	const n = 600
	t := &engine.Test{Kind: "cold", Title: "600 requests at once, cold",
		Question: "How many connections does a cold start cost the SSP, and how long do its first requests wait?",
		Notes:    []string{"A pool without a cap was seen to open 709 to 1 285 HTTP/2 connections for 600 requests, in 0.55 to 1.98 s."},
		Tables: []engine.Table{{Title: fmt.Sprintf("%d requests at once to an SSP that takes 20 ms", n), Heads: []string{"proxy"},
			Columns: []engine.Column{{Head: "answered", Value: "answered"}, {Head: "failed", Value: "failed"}, {Head: "SSP connections", Value: "ssp.connections"}, {Head: "TLS handshakes", Value: "ssp.handshakes"},
				{Head: "p50 ms", Value: "p50"}, {Head: "p99 ms", Value: "p99"}, {Head: "max ms", Value: "max"}}}},
		Charts: []engine.Chart{{Title: "Connections that the SSP saw", Y: "connections", Series: []engine.Series{{Name: "connections", Value: "ssp.connections"}}},
			{Title: "Slowest answer of the cold start", Y: "ms", Series: []engine.Series{{Name: "max", Value: "max"}}}},
		Promises: []engine.Promise{{Each: true, Text: "a cold start opens no more connections than the pool may have, and loses nothing", If: fmt.Sprintf("opened <= limit and answered = %d", n),
			Words: fmt.Sprintf("{opened} connections of {limit} allowed, {answered} of %d requests answered, the slowest after {max} ms.", n)}},
	}
	for _, c := range []struct {
		name     string
		ssp      sspsim.Protocol
		protocol string // of adbuffer; "" is net/http's reverse proxy
		pool     string
		limit    float64 // of connections
	}{
		{"adbuffer, http2", sspsim.TLSHTTP2, "http2", "", 4},
		{"adbuffer, http2, warmed (min_idle 2)", sspsim.TLSHTTP2, "http2", "min_idle: 2, ", 4},
		{"adbuffer, auto", sspsim.TLSAuto, "auto", "", 4},
		{"adbuffer, http1, max_conns 256", sspsim.HTTP1, "http1", "max_conns: 256, ", 256},
		{"net/http, http2, no cap (its default)", sspsim.TLSHTTP2, "", "", 0},
	} {
		trial := engine.Trial{Name: c.name, Server: engine.Server{Config: engine.Config{Deadline: "2s"}}, Const: engine.Values{"limit": c.limit},
			SSPs:  []*engine.SSP{{Name: "ssp", Speaks: c.ssp, Behaviour: steady(20 * time.Millisecond), Protocol: c.protocol, Pool: c.pool + "max_pending: 1000, pending_timeout: 2s"}},
			Steps: []engine.Step{{Load: engine.Generate(engine.ClosedLoop(n, n, 0, engine.Page("page", "/fillbuffer")), false)}}}
		if c.protocol == "" {
			trial.Server = engine.Server{Program: "reverseproxy", Route: &rig.Route{HTTP2: true}}
		} else {
			// Those of a warm pool were opened before.
			trial.Derive = func(s *engine.Sample) { s.Values["opened"] = s.Values["ssp.open"] }
		}
		t.Trials = append(t.Trials, trial)
	}
	return t
}

// churn loads SSPs that close their connections early, without a word, and counts what is
// lost.
func churn(e *engine.Env) *engine.Test {
	length := e.Time(20*time.Second, 4*time.Second)
	t := &engine.Test{Kind: "churn", Title: "SSPs that close connections", Question: "Are requests lost when the SSP closes the connections that are kept to it?",
		Tables: []engine.Table{{Title: fmt.Sprintf("%.0f s, half GET, half POST", length.Seconds()), Heads: []string{"the SSP closes", "method"}, Each: []string{"GET", "POST"},
			Columns: []engine.Column{{Head: "offered", Value: ".offered"}, {Head: "lost", Value: ".failures"}, {Head: "p99 ms", Value: ".p99"}, {Head: "SSP connections", Value: "ssp.connections"}, {Head: "retries (stale)", Value: "retries"}, {Head: "stale connections found", Value: "stale"}}}},
		Charts: []engine.Chart{{Title: "Requests lost to closed connections", Y: "requests", Series: []engine.Series{{Name: "GET", Value: "GET.failed"}, {Name: "POST", Value: "POST.failed"}}}},
		Promises: []engine.Promise{
			{Text: "no GET is lost to a connection that the SSP closed", If: "sum:GET.failed = 0", Words: "{sum:GET.failed} of {sum:GET.offered} lost."},
			{Text: "at most one POST in 1 000 is lost to one: it is not sent again where the SSP may have seen it", If: "sum:POST.failed / sum:POST.offered <= 0.001", Words: "{sum:POST.failed} of {sum:POST.offered} lost."}},
	}
	plan := poisson(engine.OpenLoop(128, 200, 0, length, engine.Page("GET", "/fillbuffer"), engine.Bid("POST", "/fillbuffer")))
	// Bursts leave connections idle between them.
	plan.Phases[0].BurstEvery, plan.Phases[0].BurstSize = 1300*time.Millisecond, 60
	for _, c := range []struct {
		name        string
		speaks      sspsim.Protocol
		protocol    string
		connections sspsim.Connections
	}{
		{"after 100 requests, announced", sspsim.HTTP1, "http1", sspsim.Connections{MaxRequests: 100, Announce: true}},
		{"after 100 requests, without a word", sspsim.HTTP1, "http1", sspsim.Connections{MaxRequests: 100}},
		{"after 50 ms idle", sspsim.HTTP1, "http1", sspsim.Connections{IdleTimeout: 50 * time.Millisecond}},
		{"after 1 s idle", sspsim.HTTP1, "http1", sspsim.Connections{IdleTimeout: time.Second}},
		{"HTTP/2: GOAWAY after 100 requests", sspsim.TLSHTTP2, "http2", sspsim.Connections{MaxRequests: 100, Announce: true}},
	} {
		b := sspsim.Behaviour{Latency: sspsim.Lognormal(5*time.Millisecond, 20*time.Millisecond), Response: sspsim.Response{Echo: true}, Connections: c.connections}
		t.Trials = append(t.Trials, engine.Trial{Name: c.name, SSPs: []*engine.SSP{{Name: "ssp", Speaks: c.speaks, Protocol: c.protocol, Behaviour: b}}, Server: engine.Server{Config: engine.Config{Deadline: "1s"}},
			Metrics: map[string][]string{"retries": {"adbuffer_retries_total", `kind="stale"`}, "stale": {"adbuffer_pool_stale_connections_total"}}, Steps: []engine.Step{{Load: engine.Calmly(plan, true)}}})
	}
	return t
}

// burst goes from nothing to the peak within two seconds, as a live ad break does, on a cold
// adbuffer and on a warmed one.
func burst(e *engine.Env) *engine.Test {
	peak := float64(min(e.Count(4000, 1000), 4000)) // what one core is for is measured elsewhere
	hold := e.Time(10*time.Second, 3*time.Second)
	t := &engine.Test{Kind: "burst", Title: "From nothing to the peak in two seconds", Question: "Do the first requests of an ad break suffer, cold and warmed?",
		Tables: []engine.Table{{Title: fmt.Sprintf("0 to %.0f requests/s in 2 s, then %.0f s; the SSPs take 30 ms (p99 120 ms), deadline 1 s", peak, hold.Seconds()), Heads: []string{"start", "upstream", "phase"}, Each: []string{"rise", "peak"},
			Columns: []engine.Column{{Head: "offered", Value: ".offered"}, {Head: "answered", Value: ".answered"}, {Head: "failed", Value: ".failed"}, {Head: "p50 ms", Value: ".p50"}, {Head: "p99 ms", Value: ".p99"}, {Head: "p99.9 ms", Value: ".p999"}, {Head: "SSP connections", Value: "ssp.open"}}}},
		Charts: []engine.Chart{{Title: "Burst: ", Ticks: true}},
		Promises: []engine.Promise{{Each: true, Doubtful: true, Text: "at most 1 in 1 000 requests fails while the load rises from nothing to the peak", If: "rise.failed / rise.offered <= 0.001",
			Words: "{rise.failures}, p99 {rise.p99} ms, then at the peak {peak.failures}, p99 {peak.p99} ms."}},
	}
	plan := poisson(engine.OpenLoop(1024, 0, 0, hold, engine.Page("page", "/fillbuffer")), 200, 204)
	plan.Phases = []load.Phase{{Name: "rise", Duration: 2 * time.Second, From: 0, To: peak}, {Name: "peak", Duration: hold, From: peak, To: peak}}
	plan.Tick = 250 * time.Millisecond
	for _, c := range []struct {
		start, protocol string
		speaks          sspsim.Protocol
		pool            string
	}{
		{"cold", "http1", sspsim.HTTP1, "max_conns: 1024"},
		{"warmed", "http1", sspsim.HTTP1, "max_conns: 1024, min_idle: 256"},
		{"cold", "http2", sspsim.TLSHTTP2, "max_conns: 8, max_http2_conns: 8"},
		{"warmed", "http2", sspsim.TLSHTTP2, "max_conns: 8, max_http2_conns: 8, min_idle: 4"},
	} {
		t.Trials = append(t.Trials, engine.Trial{Name: c.start + ", " + c.protocol, Cells: []any{c.start, c.protocol},
			SSPs:   []*engine.SSP{{Name: "ssp", Speaks: c.speaks, Protocol: c.protocol, Behaviour: realistic(30*time.Millisecond, 120*time.Millisecond), Pool: c.pool + ", max_pending: 2000, pending_timeout: 500ms"}},
			Server: engine.Server{Config: engine.Config{Deadline: "1s"}}, Steps: []engine.Step{{Load: engine.Calmly(plan, true)}}})
	}
	return t
}
