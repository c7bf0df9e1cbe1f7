package tests

import (
	"fmt"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/stage"
)

// cold counts the connections that a cold start opens.
func cold(*stage.Env) *stage.Test {
	const n = 600
	t := &stage.Test{Kind: "cold", Title: "600 requests at once, cold",
		Question: "How many connections does a cold start cost the SSP, and how long do its first requests wait?",
		Notes:    []string{"A pool without a cap was seen to open 709 to 1 285 HTTP/2 connections for 600 requests, in 0.55 to 1.98 s."},
		Tables: []stage.Table{{Title: fmt.Sprintf("%d requests at once to an SSP that takes 20 ms", n), Heads: []string{"proxy"},
			Columns: []stage.Column{{Head: "answered", Value: "answered"}, {Head: "failed", Value: "failed"}, {Head: "SSP connections", Value: "ssp.connections"}, {Head: "TLS handshakes", Value: "ssp.handshakes"},
				{Head: "p50 ms", Value: "p50"}, {Head: "p99 ms", Value: "p99"}, {Head: "max ms", Value: "max"}}}},
		Charts: []stage.Chart{{Title: "Connections that the SSP saw", Y: "connections", Series: []stage.Series{{Name: "connections", Value: "ssp.connections"}}},
			{Title: "Slowest response of the cold start", Y: "ms", Series: []stage.Series{{Name: "max", Value: "max"}}}},
		Promises: []stage.Promise{{Each: true, Text: "a cold start opens no more connections than the pool may have, and loses nothing", If: fmt.Sprintf("opened <= limit and answered = %d", n),
			Words: fmt.Sprintf("{opened} connections of {limit} allowed, {answered} of %d requests succeeded, the slowest after {max} ms.", n)}},
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
		trial := stage.Trial{Name: c.name, Server: stage.Server{Config: stage.Config{Deadline: "2s"}}, Const: stage.Values{"limit": c.limit},
			SSPs:  []*stage.SSP{{Name: "ssp", Speaks: c.ssp, Behaviour: steady(20 * time.Millisecond), Protocol: c.protocol, Pool: c.pool + "max_pending: 1000, pending_timeout: 2s"}},
			Steps: []stage.Step{{Load: stage.Generate(stage.ClosedLoop(n, n, 0, stage.Page("page", "/fillbuffer")), false)}}}
		if c.protocol == "" {
			trial.Server = stage.Server{Program: "reverseproxy", Route: &rig.Route{HTTP2: true}}
		} else {
			// A warm pool has opened some of its connections before the load.
			trial.Derive = func(s *stage.Sample) { s.Values["opened"] = s.Values["ssp.total"] }
		}
		t.Trials = append(t.Trials, trial)
	}
	return t
}

// churn loads SSPs that close their connections early, and counts the lost requests.
func churn(e *stage.Env) *stage.Test {
	length := e.Time(20*time.Second, 4*time.Second)
	t := &stage.Test{Kind: "churn", Title: "SSPs that close connections", Question: "Are requests lost when the SSP closes the connections that are kept to it?",
		Tables: []stage.Table{{Title: fmt.Sprintf("%.0f s, half GET, half POST", length.Seconds()), Heads: []string{"the SSP closes", "method"}, Each: []string{"GET", "POST"},
			Columns: []stage.Column{{Head: "offered", Value: "@.offered"}, {Head: "lost", Value: "@.failures"}, {Head: "p99 ms", Value: "@.p99"}, {Head: "SSP connections", Value: "ssp.connections"}, {Head: "retries (stale)", Value: "retries"}, {Head: "stale connections found", Value: "stale"}}}},
		Charts: []stage.Chart{{Title: "Requests lost to closed connections", Y: "requests", Series: []stage.Series{{Name: "GET", Value: "GET.failed"}, {Name: "POST", Value: "POST.failed"}}}},
		Promises: []stage.Promise{
			{Text: "no GET is lost to a connection that the SSP closed", If: "sum:GET.failed = 0", Words: "{sum:GET.failed} of {sum:GET.offered} lost."},
			{Text: "at most one POST in 1 000 is lost to one: it is not sent again where the SSP may have seen it", If: "sum:POST.failed / sum:POST.offered <= 0.001", Words: "{sum:POST.failed} of {sum:POST.offered} lost."}},
	}
	plan := poisson(stage.OpenLoop(128, 200, 0, length, stage.Page("GET", "/fillbuffer"), stage.Bid("POST", "/fillbuffer")))
	// Bursts leave connections idle between them.
	plan.Phases[0].BurstEvery, plan.Phases[0].BurstSize = 1300*time.Millisecond, 60
	for _, c := range []struct {
		name        string
		speaks      sspsim.Protocol
		protocol    string
		connections sspsim.Connections
	}{
		{"after 100 requests, announced", sspsim.HTTP1, "http1", sspsim.Connections{MaxRequests: 100, Announce: true}},
		{"after 100 requests, unannounced", sspsim.HTTP1, "http1", sspsim.Connections{MaxRequests: 100}},
		{"after 50 ms idle", sspsim.HTTP1, "http1", sspsim.Connections{IdleTimeout: sspsim.Duration(50 * time.Millisecond)}},
		{"after 1 s idle", sspsim.HTTP1, "http1", sspsim.Connections{IdleTimeout: sspsim.Duration(time.Second)}},
		{"HTTP/2: GOAWAY after 100 requests", sspsim.TLSHTTP2, "http2", sspsim.Connections{MaxRequests: 100, Announce: true}},
	} {
		b := sspsim.Behaviour{Latency: sspsim.Lognormal(5*time.Millisecond, 20*time.Millisecond), Response: sspsim.Response{Echo: true}, Connections: c.connections}
		t.Trials = append(t.Trials, stage.Trial{Name: c.name, SSPs: []*stage.SSP{{Name: "ssp", Speaks: c.speaks, Protocol: c.protocol, Behaviour: b}}, Server: stage.Server{Config: stage.Config{Deadline: "1s"}},
			Metrics: map[string][]string{"retries": {"adbuffer_retries_total", `kind="stale"`}, "stale": {"adbuffer_pool_stale_connections_total"}}, Steps: []stage.Step{{Load: stage.Calmly(plan, true)}}})
	}
	return t
}

// burst raises the load from nothing to the peak within two seconds, as a live ad break does. It loads
// a cold adbuffer and a warmed one.
func burst(e *stage.Env) *stage.Test {
	peak := float64(min(e.Count(4000, 1000), 4000)) // other tests measure how much one core carries
	hold := e.Time(10*time.Second, 3*time.Second)
	t := &stage.Test{Kind: "burst", Title: "From nothing to the peak in two seconds", Question: "Do the first requests of an ad break suffer, cold and warmed?",
		Tables: []stage.Table{{Title: fmt.Sprintf("0 to %.0f requests/s in 2 s, then %.0f s; the SSPs take 30 ms (p99 120 ms), deadline 1 s", peak, hold.Seconds()), Heads: []string{"start", "upstream", "phase"}, Each: []string{"rise", "peak"},
			Columns: []stage.Column{{Head: "offered", Value: "@.offered"}, {Head: "answered", Value: "@.answered"}, {Head: "failed", Value: "@.failed"}, {Head: "p50 ms", Value: "@.p50"}, {Head: "p99 ms", Value: "@.p99"}, {Head: "p99.9 ms", Value: "@.p999"}, {Head: "SSP connections", Value: "ssp.total"}}}},
		Charts: []stage.Chart{{Title: "Burst: ", Ticks: true}},
		Promises: []stage.Promise{{Each: true, Doubtful: true, Text: "at most 1 in 1 000 requests fails while the load rises from nothing to the peak", If: "rise.failed / rise.offered <= 0.001",
			Words: "{rise.failures}, p99 {rise.p99} ms, then at the peak {peak.failures}, p99 {peak.p99} ms."}},
	}
	plan := poisson(stage.OpenLoop(1024, 0, 0, hold, stage.Page("page", "/fillbuffer")), 200, 204)
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
		t.Trials = append(t.Trials, stage.Trial{Name: c.start + ", " + c.protocol, Cells: []any{c.start, c.protocol},
			SSPs:   []*stage.SSP{{Name: "ssp", Speaks: c.speaks, Protocol: c.protocol, Behaviour: realistic(30*time.Millisecond, 120*time.Millisecond), Pool: c.pool + ", max_pending: 2000, pending_timeout: 500ms"}},
			Server: stage.Server{Config: stage.Config{Deadline: "1s"}}, Steps: []stage.Step{{Load: stage.Calmly(plan, true)}}})
	}
	return t
}
