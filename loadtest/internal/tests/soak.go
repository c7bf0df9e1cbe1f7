package tests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/stage"
)

// perConnection is nginx's keepalive_requests.
const perConnection = 1000

// way is a protocol and a pool with which adbuffer sends requests to nginx.
type way struct {
	name, id string
	protocol string // in adbuffer's configuration
	speaks   string // the protocol that adbuffer must use, as its metrics name it
	conns    int    // max_conns; fewer if a run is too short for so many
	pool     string // further keys
	tls      bool
	clients  int // connections to adbuffer, a request at a time on each
}

// There are more clients than places, so that requests queue and pipelines are full.
var ways = []way{
	{name: "HTTP/1", id: "http1", protocol: "http1", speaks: "http1", conns: 32, clients: 64},
	{name: "HTTP/1 pipelined, depth 8", id: "depth8", protocol: "http1-pipelined", speaks: "http1-pipelined", conns: 8, pool: "pipeline_depth: 8, ", clients: 96},
	{name: "HTTP/1 pipelined, depth 64", id: "depth64", protocol: "http1-pipelined", speaks: "http1-pipelined", conns: 3, pool: "pipeline_depth: 64, pipeline_methods: all, ", clients: 256},
	{name: "HTTP/2 over TLS, by ALPN", id: "http2", protocol: "auto", speaks: "http2", conns: 4, tls: true, clients: 256},
}

// A response has the number of its request in the header and at the start of the body. The length of
// the body depends on the method.
const (
	soakHTTP  = `log_format account '$arg_cb $connection_requests'; http2_max_concurrent_streams 128; keepalive_requests %d; ssl_session_cache shared:s:2m;`
	soakServe = `access_log %s account buffer=64k flush=1s;
		location / {
			add_header X-Echo-Cb $arg_cb;
			return 200 '$arg_cb {"id":"$arg_cb","method":"$request_method","seatbid":[{"bid":[{"id":"1","impid":"1","price":0.5,"adm":"$request_uri"}]}]}';
		}`
)

// Soak sends n requests each way to a real nginx that closes connections all the time, and accounts
// for each request. If n is 0, it sends a million times the scale.
func Soak(ctx context.Context, e *stage.Env, n int) (*stage.Test, error) {
	if n == 0 {
		n = e.Count(1_000_000, 2*perConnection)
	}
	count := results.Number(float64(n))
	t := &stage.Test{Kind: "soak", Title: "Every request accounted for", Needs: []string{"nginx"},
		Question: "Does each response reach its own request, and does each request reach the SSP exactly once, while a real nginx closes its connections all the time?",
		Notes: []string{"adbuffer, nginx and the generator share all cores; what is measured is that nothing is lost, mixed up or repeated, not speed.",
			"adbuffer sends a request again if nginx closed its connection before it processed the request."},
		Tables: []stage.Table{{Title: fmt.Sprintf("%s requests each way, a quarter of them POSTs, to nginx with keepalive_requests %d", count, perConnection), Heads: []string{"way"},
			Columns: []stage.Column{{Head: "answered with their number", Value: "answered"}, {Head: "failed", Value: "failed"}, {Head: "reached nginx once", Value: "once"}, {Head: "more often", Value: "twice"}, {Head: "never", Value: "never"},
				{Head: "connections", Value: "nginx.connections"}, {Head: "sent again", Value: "again"}, {Head: "requests/s", Value: "rate"}, {Head: "p99 ms", Value: "p99"}, {Head: "adbuffer memory", Value: "rss", As: "MiB"}}}},
		Charts:   []stage.Chart{{Title: "Requests a second, all of them checked", Y: "requests/s", Series: []stage.Series{{Name: "requests/s", Value: "rate"}}}},
		Promises: []stage.Promise{{Each: true, Text: "every request gets its own response, and reaches the SSP exactly once", If: "violations = 0", Words: "{account}"}},
	}
	for _, w := range ways {
		conns := min(w.conns, max(1, n/(4*perConnection)))
		ssp := &stage.SSP{Name: "nginx", Protocol: w.protocol, Pool: w.pool + fmt.Sprintf("max_conns: %[1]d, max_http2_conns: %[1]d, max_pending: 4096, pending_timeout: 20s", conns)}
		log := filepath.Join(e.Rig.Dir, "soak-"+w.id+".log")
		route := &rig.Route{Name: w.id, Serve: fmt.Sprintf(soakServe, log)}
		scheme := "http://"
		if w.tls {
			cert, err := e.Rig.Certificate("soak", "127.0.0.1")
			if err != nil {
				return nil, err
			}
			scheme, route.TLS, ssp.CAFile = "https://", &cert, cert.CA
		}
		if err := e.Rig.StartProgram(ctx, "nginx", "", fmt.Sprintf(soakHTTP, perConnection), route); err != nil {
			return nil, err
		}
		ssp.URLs = []string{scheme + route.Addr + "/bid"}
		plan := stage.ClosedLoop(w.clients, n, 12*time.Hour,
			load.Template{Name: "GET", Method: "GET", Path: "/fillbuffer?cb=" + load.Number, Weight: 3},
			load.Template{Name: "POST", Method: "POST", Path: "/fillbuffer?cb=" + load.Number, JSON: true, Body: sspsim.Size{P50: 1300, P95: 3000}})
		plan.Echo, plan.EchoBody = true, true
		t.Trials = append(t.Trials, stage.Trial{Name: w.name, SSPs: []*stage.SSP{ssp}, Server: stage.Server{Anywhere: true, Config: stage.Config{Deadline: "30s"}},
			Steps: []stage.Step{{Load: func(ctx context.Context, s *stage.Stage) (*stage.Sample, error) {
				e.Say("soak: %s requests over %s", count, w.name)
				return w.soak(ctx, s, plan, n, route, log)
			}}}})
	}
	return t, nil
}

// soak sends the requests, and compares the counts of the generator, adbuffer and nginx.
func (w way) soak(ctx context.Context, s *stage.Stage, plan load.Plan, n int, nginx *rig.Route, log string) (*stage.Sample, error) {
	done, printed := 0, 0
	sample, err := stage.Watched(plan, func(p load.Progress) {
		done += int(p.Answered)
		if tenth := done * 10 / n; tenth > printed && tenth < 10 {
			printed = tenth
			s.Say("soak: %s: %d responses, %d errors in the last second", w.name, done, p.Errors)
		}
	})(ctx, s)
	if err != nil {
		return nil, err
	}
	v := sample.Values
	used, err := load.Read(s.PID)
	for name, metric := range map[string][]string{"opened": {"adbuffer_pool_connections_opened_total"}, "speaking": {"adbuffer_pool_connections_opened_total", fmt.Sprintf("protocol=%q", w.speaks)}, "again": {"adbuffer_retries_total"}} {
		var failed error
		v[name], failed = s.Adbuffer.Metric(metric[0], metric[1:]...)
		err = errors.Join(err, failed)
	}
	if err != nil {
		return nil, err
	}
	// nginx writes the rest of its log when it exits.
	s.Adbuffer.Stop()
	nginx.Process.Stop()
	s.PID, v["rss"] = 0, float64(used.RSS)
	file, err := os.Open(log)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	a, err := readLog(file, n)
	if err != nil {
		return nil, err
	}
	v["once"], v["twice"], v["never"], v["nginx.connections"] = float64(a.once), float64(a.twice), float64(a.never), float64(a.connections)
	violations := a.violations(w, n, v, sample.Texts["failures"])
	v["violations"] = float64(len(violations))
	if sample.Texts["account"] = strings.Join(violations, "; ") + "."; len(violations) == 0 {
		sample.Texts["account"] = fmt.Sprintf("%s of %s, over %s connections of at most %d requests; %s requests were sent again, since nginx had closed before it processed them.",
			results.Number(float64(a.once)), results.Number(float64(n)), results.Number(float64(a.connections)), a.longest, results.Number(v["again"]))
	}
	return sample, nil
}

// violations returns why the requests are not all accounted for.
func (a account) violations(w way, n int, v stage.Values, failures string) (out []string) {
	check := func(broken bool, format string, args ...any) {
		if broken {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	check(v["answered"] != float64(n) || v["failed"] > 0, "%.0f of %d got a response with their number, %s", v["answered"], n, failures)
	check(a.twice > 0, "%d reached nginx more than once, such as %v", a.twice, a.repeated)
	check(a.never > 0, "%d never reached nginx", a.never)
	check(a.foreign > 0, "nginx saw %d requests that no client sent, such as %q", a.foreign, a.stranger)
	check(v["opened"] > v["speaking"], "%.0f of %.0f connections do not speak %s", v["opened"]-v["speaking"], v["opened"], w.speaks)
	// Without a connection that nginx closes, the test shows nothing.
	check(a.longest > perConnection || n >= 4*perConnection && a.longest < perConnection,
		"nginx closed no connection after %d requests: %d of them carried up to %d", perConnection, a.connections, a.longest)
	return out
}
