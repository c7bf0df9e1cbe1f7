package tests

import (
	"context"
	"fmt"
	"time"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/stage"
)

// constantUpstream starts the cheapest upstream, which responds with a kilobyte.
func constantUpstream(e *stage.Env) (*rig.SSP, error) {
	return e.Rig.StartConstant(len(load.ConstantBody(1000)), e.LoadCores)
}

// rules checks the rules of thumb of load testing on adbuffer: keep-alive on and off with ab and wrk,
// and the client's ports.
func rules(_ context.Context, e *stage.Env) (*stage.Test, error) {
	up, err := constantUpstream(e)
	if err != nil {
		return nil, err
	}
	n := e.Count(100_000, 2_000)
	const conns = 200
	reuse := load.Sysctl("net/ipv4/tcp_tw_reuse")
	t := &stage.Test{Kind: "rules", Title: "Load-testing rules of thumb", Question: "What do the usual tools measure with keep-alive and without, and do ports run out?", Needs: []string{"ab"},
		Notes: []string{fmt.Sprintf("net.ipv4.tcp_tw_reuse is %s (0 off, 1 on, 2 on for loopback), local ports %s.", reuse, load.Sysctl("net/ipv4/ip_local_port_range"))},
		Tables: []stage.Table{{Title: fmt.Sprintf("adbuffer on one core, %d connections", conns), Heads: []string{"tool", "responses", "keep-alive"},
			Columns: []stage.Column{{Head: "requests/s", Value: "rate"}, {Head: "p50 ms", Value: "p50"}, {Head: "p99 ms", Value: "p99"}, {Head: "failed", Value: "failed"}, {Head: "CPU µs/request", Value: "cpu_us"}, {Head: "TIME_WAIT sockets", Value: "timewait"}},
			Theirs:  [][]any{{"four cores, PHP", "hello world", "on", "80 000–160 000", "", "", "", "", ""}, {"four cores, PHP", "hello world", "off", "10 000–30 000", "", "", "", "", "ports run out at ~28 000"}}}},
		Charts: []stage.Chart{{Title: "Requests/s with keep-alive and without", Y: "requests/s", Series: []stage.Series{{Value: "rate"}}}},
	}
	if reuse == "1" || reuse == "2" {
		t.Promises = append(t.Promises, stage.Promise{Text: "where the kernel reuses ports in TIME_WAIT, no request fails for want of a port, with keep-alive or without", If: "sum:failed = 0",
			Words: "{sum:failed} requests failed, {sum:answered} did not; {sum:fresh} of them came without keep-alive. At most {max:timewait} sockets were in TIME_WAIT at the end of a run."})
	}
	t.Promises = append(t.Promises, stage.Promise{Text: "keep-alive is worth more than any other setting of a client", If: "ab, own (health_path), on:rate > ab, own (health_path), off:rate",
		Words: "ab: {ab, own (health_path), on:rate} requests/s with it, {ab, own (health_path), off:rate} without."})
	for _, responses := range []struct{ name, path string }{{"own (health_path)", "/health"}, {"forwarded", "/fillbuffer?pub=1"}} {
		for _, tool := range []string{"ab", "wrk"} {
			for _, onOff := range []string{"on", "off"} {
				request := stage.Get(responses.path)
				flags := []string{"-k"}
				if onOff == "off" {
					request.Headers, flags = []load.Field{{Name: "Connection", Value: "close"}}, nil
				}
				// Without keep-alive each request needs a port. At full size there are more requests
				// than ports.
				drive := stage.AB(responses.path, n, conns, flags...)
				if tool == "wrk" {
					drive = stage.WRK(request, conns, e.Time(10*time.Second, time.Second))
				}
				trial := stage.Trial{Name: tool + ", " + responses.name + ", " + onOff, Cells: []any{tool, responses.name, onOff}, Label: tool + ", " + responses.name, Series: onOff, Tool: tool,
					SSPs:   []*stage.SSP{{Name: "ssp", URLs: []string{up.URL}, Protocol: "http1"}},
					Server: stage.Server{OneCore: true, Config: stage.Config{Server: []string{"health_path: /health"}}}, Steps: []stage.Step{{Load: drive}}}
				trial.Derive = func(s *stage.Sample) {
					if onOff == "off" {
						s.Values["fresh"] = s.Values["answered"]
					}
				}
				t.Trials = append(t.Trials, trial)
			}
		}
	}
	return t, nil
}

// adProxy repeats the prototypes' test: ab without keep-alive on /fillbuffer, for the server's own
// responses and for forwarded responses.
func adProxy(_ context.Context, e *stage.Env) (*stage.Test, error) {
	up, err := constantUpstream(e)
	if err != nil {
		return nil, err
	}
	// The full size is a million requests, which take a minute or more, twelve times.
	n := e.Count(1_000_000, 2_000)
	t := &stage.Test{Kind: "adproxy", Title: "The ad proxy itself", Needs: []string{"ab"},
		Question: "How do the two prototypes, a fixed JSON in Node and in Go, compare with adbuffer, when clients open a connection per request?",
		Notes: []string{"Constant responses: the prototypes' fixed JSON, and adbuffer's health_path, which is a response of its own.",
			"Forwarded responses: 1 KB of JSON from an upstream on the load's core, which ab shares."},
		Tables: []stage.Table{{Title: fmt.Sprintf("ab -n %d, no keep-alive", n), Heads: []string{"server", "responses", "ab -c"},
			Columns: []stage.Column{{Head: "requests/s", Value: "rate"}, {Head: "p50 ms", Value: "p50"}, {Head: "p95 ms", Value: "p95"}, {Head: "p99 ms", Value: "p99"}, {Head: "max ms", Value: "max"}, {Head: "CPU µs/request", Value: "cpu_us"}},
			Theirs: [][]any{{"Node + fastify", "constant", 100, 12925, 8, 10, 13, 106, ""}, {"Go + fasthttp", "constant", 100, 15848, 6, 7, 8, 18, ""},
				{"Node + fastify", "constant", 500, 9673, 48, 79, 156, 286, ""}, {"Go + fasthttp", "constant", 500, 14682, 34, 40, 41, 62, ""}}}}}
	for _, kind := range []string{"constant", "forwarded"} {
		t.Charts = append(t.Charts, stage.Chart{Title: "Requests/s without keep-alive: " + kind + " responses", Only: kind, Y: "requests/s", Series: []stage.Series{{Value: "rate"}}},
			stage.Chart{Title: "p99 without keep-alive: " + kind + " responses", Only: kind, Y: "ms", Series: []stage.Series{{Value: "p99"}}})
		for _, program := range []string{"adbuffer", "sketch", "fastify"} {
			for _, conns := range []int{100, 500} {
				path := "/fillbuffer?pub=1"
				server := stage.Server{Program: program, Route: &rig.Route{}}
				if kind == "forwarded" {
					server.Route.Upstreams = []string{"http://" + up.Addr}
				}
				ssps := []*stage.SSP(nil)
				if program == "adbuffer" {
					server = stage.Server{OneCore: true, Config: stage.Config{Server: []string{"health_path: /health"}}}
					ssps = []*stage.SSP{{Name: "ssp", URLs: []string{up.URL}, Protocol: "http1"}}
					if kind == "constant" {
						path = "/health"
					}
				}
				t.Trials = append(t.Trials, stage.Trial{Name: fmt.Sprintf("%s, %s, -c %d", program, kind, conns), Cells: []any{program, kind, conns}, Label: fmt.Sprintf("ab -c %d", conns), Series: program, Tags: []string{kind},
					SSPs: ssps, Server: server, Steps: []stage.Step{{Load: stage.AB(path, n, conns)}}})
			}
		}
	}
	for _, c := range []string{"100", "500"} {
		ours, node := "adbuffer, forwarded, -c "+c+":rate", "fastify, forwarded, -c "+c+":rate"
		t.Promises = append(t.Promises, stage.Promise{Text: "at -c " + c + " adbuffer forwards more requests/s than fastify's proxy", If: ours + " > " + node, Words: "{" + ours + "} against {" + node + "} requests/s."})
	}
	return t, nil
}
