package tests

import (
	"fmt"
	"strings"
	"time"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
)

// kilobyte is the JSON with which upstreams respond.
var kilobyte = `{"` + strings.Repeat("x", 996) + `"}`

// constantUpstream starts an upstream that costs as little as possible and responds to all requests with the same JSON.
func constantUpstream(e *rig.Rig, body string) *rig.Route {
	up := &rig.Route{Name: "constant", Serve: body}
	e.StartProgram("constant", e.LoadCores, "", up)
	return up
}

// beforeUpstream returns the setup of an adbuffer with one core in front of an upstream. At /health, adbuffer responds
// itself.
func beforeUpstream(up *rig.Route) rig.Setup {
	return rig.Setup{OneCore: true, Config: rig.Config{Server: []string{"health_path: /health"}},
		SSPs: []*rig.SSP{{Name: "ssp", URLs: []string{"http://" + up.Addr + "/bid"}, Protocol: "http1"}}}
}

// closing is the header of a request that is the only one on its connection.
var closing = []load.Field{{Name: "Connection", Value: "close"}}

// rules checks the rules of thumb of load testing on adbuffer: keep-alive on and off, and the client's ports. Without
// keep-alive each request needs a port. At full size there are more requests than ports.
func rules(e *rig.Rig) {
	const conns = 200
	r := e.Rep
	e.Needs("wrk")
	up := constantUpstream(e, kilobyte)
	reuse := load.Sysctl("net/ipv4/tcp_tw_reuse")
	r.Note("net.ipv4.tcp_tw_reuse is %s (0 off, 1 on, 2 on for loopback), local ports %s.", reuse,
		load.Sysctl("net/ipv4/ip_local_port_range"))
	t := r.Table(fmt.Sprintf("adbuffer on one core, %d connections of wrk", conns), "server", "responses", "keep-alive",
		"requests/s", "p50 ms", "p99 ms", "failed", "CPU µs/request", "TIME_WAIT sockets")
	t.AddTheirs("four cores, PHP", "hello world", "on", "80 000–160 000")
	t.AddTheirs("four cores, PHP", "hello world", "off", "10 000–30 000", "", "", "", "", "ports run out at ~28 000")
	all := new(rig.Figures)
	var fresh uint64            // requests without keep-alive
	own := map[string]float64{} // requests/s of adbuffer's own response, with keep-alive on and off
	for _, responses := range []struct{ name, path string }{{"own (health_path)", "/health"}, {"forwarded", small.Path}} {
		for _, onOff := range []string{"on", "off"} {
			e.Next("rules: %s, %s", responses.name, onOff)
			request := rig.Get(responses.path)
			if onOff == "off" {
				request.Headers = closing
			}
			f := e.Once(beforeUpstream(up), rig.WRK(request, conns, e.Time(10*time.Second, time.Second)))
			t.Add(f.Doubts, "adbuffer", responses.name, onOff, f.Rate, f.Latency.P50, f.Latency.P99, f.Failed, f.CPUus, f.TimeWait)
			all.Answered, all.Failed, all.TimeWait = all.Answered+f.Answered, all.Failed+f.Failed, max(all.TimeWait, f.TimeWait)
			if onOff == "off" {
				fresh += f.Answered
			}
			if responses.path == "/health" {
				own[onOff] = f.Rate
			}
		}
	}
	if reuse == "1" || reuse == "2" {
		r.Promise("where the kernel reuses ports in TIME_WAIT, no request fails for want of a port, with keep-alive "+
			"or without", all.Failed == 0, nil,
			"%v requests failed, %v did not; %v of them came without keep-alive. At most %v sockets were in "+
				"TIME_WAIT at the end of a run.", all.Failed, all.Answered, fresh, all.TimeWait)
	}
	r.Promise("keep-alive is worth more than any other setting of a client", own["on"] > own["off"], nil,
		"%v requests/s with it, %v without.", own["on"], own["off"])
}

// adProxy repeats the prototypes' test: no keep-alive on /fillbuffer, for the server's own responses and for forwarded
// responses. The prototypes were measured with ab, and wrk sends the requests here.
func adProxy(e *rig.Rig) {
	r := e.Rep
	e.Needs("wrk")
	r.Note("Constant responses: the prototypes' fixed JSON, and adbuffer's health_path, which is a response of its own.")
	r.Note("Forwarded responses: 1 KB of JSON from an upstream on the load's core, which wrk shares.")
	up := constantUpstream(e, kilobyte)
	t := r.Table("no keep-alive", "server", "responses", "connections", "requests/s", "p50 ms",
		"p95 ms", "p99 ms", "max ms", "CPU µs/request")
	t.AddTheirs("Node + fastify", "constant", 100, 12925, 8, 10, 13, 106)
	t.AddTheirs("Go + fasthttp", "constant", 100, 15848, 6, 7, 8, 18)
	t.AddTheirs("Node + fastify", "constant", 500, 9673, 48, 79, 156, 286)
	t.AddTheirs("Go + fasthttp", "constant", 500, 14682, 34, 40, 41, 62)
	rates := map[string]float64{} // by program and connections, of forwarded responses
	for _, kind := range []string{"constant", "forwarded"} {
		for _, program := range []string{"adbuffer", "sketch", "fastify"} {
			if !e.Has(strings.TrimPrefix(program, "adbuffer")) {
				continue
			}
			for _, conns := range []int{100, 500} {
				e.Next("adproxy: %s, %s, %d connections", program, kind, conns)
				setup, request := rig.Setup{Program: program, Route: &rig.Route{}}, small
				request.Headers = closing
				switch {
				case program == "adbuffer":
					setup = beforeUpstream(up)
					if kind == "constant" {
						request.Path = "/health"
					}
				case kind == "forwarded":
					setup.Route.Upstreams = []string{"http://" + up.Addr}
				}
				f := e.Once(setup, rig.WRK(request, conns, e.Time(30*time.Second, time.Second)))
				t.Add(f.Doubts, program, kind, conns, f.Rate, f.Latency.P50, f.Latency.P95, f.Latency.P99,
					f.Latency.Max, f.CPUus)
				if kind == "forwarded" {
					rates[fmt.Sprint(program, conns)] = f.Rate
				}
			}
		}
	}
	for _, conns := range []int{100, 500} {
		if node, measured := rates[fmt.Sprint("fastify", conns)]; measured {
			ours := rates[fmt.Sprint("adbuffer", conns)]
			r.Promise(fmt.Sprintf("over %d connections adbuffer forwards more requests/s than fastify's proxy", conns),
				ours > node, nil, "%v against %v requests/s.", ours, node)
		}
	}
}
