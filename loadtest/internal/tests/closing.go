package tests

import (
	"fmt"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
)

// atOnce is how many requests come at once on a cold start.
const atOnce = 600

// cold counts the connections that a cold start opens.
func cold(e *rig.Rig) {
	r := e.Rep
	r.Note("A pool without a cap was seen to open 709 to 1 285 HTTP/2 connections for 600 requests, in 0.55 to 1.98 s.")
	t := r.Table(fmt.Sprintf("%d requests at once to an SSP that takes 20 ms", atOnce),
		"proxy", "answered", "failed", "SSP connections", "TLS handshakes", "p50 ms", "p99 ms", "max ms")
	for _, c := range []struct {
		name     string
		ssp      sspsim.Protocol
		protocol string // of adbuffer; "" is net/http's reverse proxy
		pool     string
		limit    uint64 // of connections
	}{
		{"adbuffer, http2", sspsim.TLSHTTP2, "http2", "", 4},
		{"adbuffer, http2, warmed (min_idle 2)", sspsim.TLSHTTP2, "http2", "min_idle: 2, ", 4},
		{"adbuffer, auto", sspsim.TLSAuto, "auto", "", 4},
		{"adbuffer, http1, max_conns 256", sspsim.HTTP1, "http1", "max_conns: 256, ", 256},
		{"net/http, http2, no cap (its default)", sspsim.TLSHTTP2, "", "", 0},
	} {
		e.Next("cold: %s", c.name)
		setup := rig.Setup{Config: rig.Config{Deadline: "2s"},
			SSPs: []*rig.SSP{{Name: "ssp", Speaks: c.ssp, Behaviour: steady(20 * time.Millisecond),
				Protocol: c.protocol, Pool: c.pool + "max_pending: 1000, pending_timeout: 2s"}}}
		if c.protocol == "" {
			setup.Program, setup.Route = "reverseproxy", &rig.Route{HTTP2: true}
		}
		e.Needs(setup.Program)
		f := e.Once(setup, rig.Generate(rig.ClosedLoop(atOnce, atOnce, 0,
			rig.Page("page", "/fillbuffer")), false))
		t.Add(f.Doubts, c.name, f.Answered, f.Failed, f.SSP.Connections, f.SSP.Handshakes, f.Latency.P50, f.Latency.P99,
			f.Latency.Max)
		if c.limit > 0 {
			// The pool may have opened some connections before the load.
			r.Promise(c.name+": a cold start opens no more connections than the pool may have, and loses nothing",
				f.SSPAll <= c.limit && f.Answered == atOnce, nil,
				"%v connections of %v allowed, %v of %v requests succeeded, the slowest after %v ms.", f.SSPAll, c.limit,
				f.Answered, atOnce, f.Latency.Max)
		}
	}
}

// churn loads SSPs that close their connections early, and counts the lost requests.
func churn(e *rig.Rig) {
	length := e.Time(20*time.Second, 4*time.Second)
	r := e.Rep
	t := r.Table(fmt.Sprintf("%.0f s, half GET, half POST", length.Seconds()),
		"the SSP closes", "method", "offered", "lost", "p99 ms", "SSP connections", "retries (stale)",
		"stale connections found")
	plan := poisson(rig.OpenLoop(128, 200, 0, length, rig.Page("GET", "/fillbuffer"),
		rig.Bid("POST", "/fillbuffer")))
	// Bursts leave connections idle between them.
	plan.Phases[0].BurstEvery, plan.Phases[0].BurstSize = 1300*time.Millisecond, 60
	var all rounds
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
		{"HTTP/2: GOAWAY after 100 requests", sspsim.TLSHTTP2, "http2",
			sspsim.Connections{MaxRequests: 100, Announce: true}},
	} {
		e.Next("churn: %s", c.name)
		b := sspsim.Behaviour{Latency: sspsim.Lognormal(5*time.Millisecond, 20*time.Millisecond),
			Response: sspsim.Response{Echo: true}, Connections: c.connections}
		f, retries, stale := closeEarly(e,
			&rig.SSP{Name: "ssp", Speaks: c.speaks, Protocol: c.protocol, Behaviour: b}, plan)
		for _, method := range []string{"GET", "POST"} {
			of := f.Class(method)
			t.Add(f.Doubts, c.name, method, of.Offered, of.Failures(), of.Latency.P99, f.SSP.Connections, retries,
				stale)
		}
		all = append(all, f)
	}
	gets, posts := all.counts("GET"), all.counts("POST")
	r.Promise("no GET is lost to a connection that the SSP closed", gets.Failed == 0, nil, "%v of %v lost.", gets.Failed, gets.Offered)
	r.Promise("at most one POST in 1 000 is lost to one: it is not sent again where the SSP may have seen it",
		share(posts.Failed, posts.Offered) <= 0.001, nil, "%v of %v lost.", posts.Failed, posts.Offered)
}

// closeEarly loads an SSP that closes connections. It returns how many requests adbuffer sent again, and
// how many closed connections it found.
func closeEarly(e *rig.Rig, ssp *rig.SSP, plan load.Plan) (f *rig.Figures, retries, stale float64) {
	s := e.Start(rig.Setup{SSPs: []*rig.SSP{ssp}, Config: rig.Config{Deadline: "1s"}})
	defer s.Stop()
	f = s.Measure(rig.Calmly(plan, true))
	return f, s.Adbuffer.Metric("adbuffer_retries_total", `kind="stale"`), s.Adbuffer.Metric("adbuffer_pool_stale_connections_total")
}

// burst raises the load from nothing to the peak within two seconds, as a live ad break does. It loads
// a cold adbuffer and a warmed one.
func burst(e *rig.Rig) {
	peak := float64(min(e.Count(4000, 1000), 4000)) // other tests measure how much one core carries
	hold := e.Time(10*time.Second, 3*time.Second)
	r := e.Rep
	t := r.Table(fmt.Sprintf("0 to %.0f requests/s in 2 s, then %.0f s; the SSPs take 30 ms (p99 120 ms), deadline 1 s",
		peak, hold.Seconds()),
		"start", "upstream", "phase", "offered", "answered", "failed", "p50 ms", "p99 ms", "p99.9 ms",
		"SSP connections")
	plan := poisson(rig.OpenLoop(1024, 0, 0, hold, rig.Page("page", "/fillbuffer")), 200, 204)
	plan.Phases = []load.Phase{{Name: "rise", Duration: 2 * time.Second, From: 0, To: peak},
		{Name: "peak", Duration: hold, From: peak, To: peak}}
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
		e.Next("burst: %s, %s", c.start, c.protocol)
		f := e.Once(rig.Setup{Config: rig.Config{Deadline: "1s"},
			SSPs: []*rig.SSP{{Name: "ssp", Speaks: c.speaks, Protocol: c.protocol,
				Behaviour: realistic(30*time.Millisecond, 120*time.Millisecond),
				Pool:      c.pool + ", max_pending: 2000, pending_timeout: 500ms"}}}, rig.Calmly(plan, true))
		for _, phase := range f.Phases {
			t.Add(f.Doubts, c.start, c.protocol, phase.Name, phase.Offered, phase.Answered, phase.Failed,
				phase.Latency.P50, phase.Latency.P99, phase.Latency.P999, f.SSPAll)
		}
		rise, peak := f.Phase("rise"), f.Phase("peak")
		r.Promise(c.start+", "+c.protocol+": at most 1 in 1 000 requests fails while the load rises from nothing to the peak",
			share(rise.Failed, rise.Offered) <= 0.001, f.Doubts,
			"%s, p99 %v ms, then at the peak %s, p99 %v ms.", rise.Failures(), rise.Latency.P99, peak.Failures(),
			peak.Latency.P99)
	}
}
