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

// AdProxy repeats the prototypes' test: ab without keep-alive on /fillbuffer,
// for answers that the server makes itself and for forwarded ones.
func AdProxy(ctx context.Context, e *engine.Env) (*results.Report, error) {
	r := e.Report("adproxy", "The ad proxy itself",
		"How do the two prototypes, a fixed JSON in Node and in Go, compare with adbuffer, when clients open a connection per request?")
	if !e.Has(r, "ab") {
		return nil, fmt.Errorf("ab: %w: apt-get install apache2-utils", rig.ErrMissing)
	}
	up, err := e.Rig.StartConstant(len(load.ConstantBody(1000)), e.LoadCores)
	if err != nil {
		return nil, err
	}
	servers, err := adProxyServers(ctx, e, r, up.Addr)
	if err != nil {
		return nil, err
	}
	// A million requests take a minute or more, twelve times: the full size.
	n := e.Count(1_000_000, 2_000)
	t := results.Table{Title: fmt.Sprintf("ab -n %d, no keep-alive", n), Columns: []string{"server", "answers", "ab -c", "requests/s", "p50 ms", "p95 ms", "p99 ms", "max ms", "CPU µs/request"}}
	for _, row := range [][]any{
		{"Node + fastify", "constant", 100, 12925, 8, 10, 13, 106, ""}, {"Go + fasthttp", "constant", 100, 15848, 6, 7, 8, 18, ""},
		{"Node + fastify", "constant", 500, 9673, 48, 79, 156, 286, ""}, {"Go + fasthttp", "constant", 500, 14682, 34, 40, 41, 62, ""},
	} {
		t.AddTheirs(row...)
	}
	rates := map[string]float64{}
	var charts []results.Chart
	for _, kind := range []string{"constant", "forwarded"} {
		rate := results.Chart{Title: "Requests/s without keep-alive: " + kind + " answers", Kind: "bar", Y: "requests/s", Labels: []string{"ab -c 100", "ab -c 500"}}
		tail := results.Chart{Title: "p99 without keep-alive: " + kind + " answers", Kind: "bar", Y: "ms", Labels: rate.Labels}
		for _, s := range servers {
			if s.kind != kind {
				continue
			}
			rs, ts := results.Series{Name: s.name}, results.Series{Name: s.name}
			var doubted []string
			for _, c := range []int{100, 500} {
				e.Say("adproxy: %s, %s answers, -c %d", s.name, kind, c)
				before, err := s.usage()
				if err != nil {
					return nil, err
				}
				l, err := rig.AB(ctx, s.url, n, c, false, e.LoadCores)
				if err != nil {
					return nil, fmt.Errorf("%s, %s, -c %d: %w", s.name, kind, c, err)
				}
				after, err := s.usage()
				if err != nil {
					return nil, err
				}
				r.Doubt(fmt.Sprintf("%s, %s, -c %d", s.name, kind, c), l.Doubts())
				doubted = append(doubted, l.Doubts()...)
				t.Add(l.Doubts(), s.name, kind, c, l.Rate, l.P50, l.P95, l.P99, l.Max, (after-before).Seconds()*1e6/float64(max(l.Requests, 1)))
				rs.Values, ts.Values = append(rs.Values, l.Rate), append(ts.Values, l.P99)
				rates[fmt.Sprintf("%s %s %d", s.name, kind, c)] = l.Rate
			}
			rs.Name = results.Mark(rs.Name, doubted)
			ts.Name = rs.Name
			rate.Series, tail.Series = append(rate.Series, rs), append(tail.Series, ts)
		}
		charts = append(charts, rate, tail)
	}
	for _, c := range []string{"100", "500"} {
		ours, node := rates["adbuffer forwarded "+c], rates["fastify forwarded "+c]
		if node > 0 {
			r.Verdicts = append(r.Verdicts, results.Verdict{Promise: "at -c " + c + " adbuffer forwards more requests/s than fastify's proxy", Held: ours > node,
				Words: fmt.Sprintf("%s against %s requests/s.", results.Number(ours), results.Number(node))})
		}
	}
	r.Notes = append(r.Notes, "Constant answers: the prototypes' fixed JSON, and adbuffer's health_path, which is an answer of its own.",
		"Forwarded answers: 1 KB of JSON from an upstream on the load's core, which ab shares.")
	r.Tables, r.Charts = []results.Table{t}, charts
	return e.Done(r), nil
}

type adServer struct {
	name, kind, url string
	process         *rig.Process
}

func (s adServer) usage() (time.Duration, error) { return cpuOf(s.process.PID) }

func adProxyServers(ctx context.Context, e *engine.Env, r *results.Report, upstream string) ([]adServer, error) {
	proxy, err := e.Rig.StartAdbuffer(ctx, e.Adbuffer, engine.Config{Server: []string{"health_path: /health"},
		SSPs: []engine.SSPConfig{{Name: "ssp", URL: "http://" + upstream + "/bid", Protocol: "http1"}}}.YAML(), e.ProxyCores, "GOMAXPROCS=1")
	if err != nil {
		return nil, err
	}
	sketch, err := e.Rig.BuildPackage(ctx, "./loadtest/peers/prototypes")
	if err != nil {
		return nil, err
	}
	var out []adServer
	start := func(name, kind string, c rig.Command, addr string) error {
		p, err := e.Rig.Start(c)
		if err != nil {
			return err
		}
		out = append(out, adServer{name, kind, "http://" + addr + "/fillbuffer?pub=1", p})
		return p.AwaitPort(ctx, addr, 20*time.Second)
	}
	dir, fastifyErr := fastifyDir(ctx)
	if fastifyErr != nil {
		r.Missing = append(r.Missing, fastifyErr.Error())
	} else {
		r.Versions["fastify"] = "fastify on " + results.Version("node", "node")
	}
	for _, kind := range []string{"constant", "forwarded"} {
		var sketchUp, fastifyUp []string
		url := "http://" + proxy.Addr + "/health"
		if kind == "forwarded" {
			sketchUp, fastifyUp = []string{"-upstream", "http://" + upstream + "/bid"}, []string{"http://" + upstream}
			url = "http://" + proxy.Addr + "/fillbuffer?pub=1"
		}
		out = append(out, adServer{"adbuffer", kind, url, proxy.Process})
		addr, _, err := freeAddr()
		if err != nil {
			return nil, err
		}
		if err := start("fasthttp sketch", kind, rig.Command{Name: "sketch", Argv: append([]string{sketch, "sketch", "-listen", addr}, sketchUp...), Cores: e.ProxyCores, Env: []string{"GOMAXPROCS=1"}}, addr); err != nil {
			return nil, err
		}
		if fastifyErr != nil {
			continue
		}
		addr, port, err := freeAddr()
		if err != nil {
			return nil, err
		}
		if err := start("fastify", kind, rig.Command{Name: "fastify", Argv: append([]string{"node", "server.js", port}, fastifyUp...), Dir: dir, Cores: e.ProxyCores, Env: []string{"NODE_ENV=production"}}, addr); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func freeAddr() (addr, port string, err error) {
	p, err := rig.FreePort()
	return fmt.Sprintf("127.0.0.1:%d", p), fmt.Sprint(p), err
}
