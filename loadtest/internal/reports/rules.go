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

// Rules checks the rules of thumb of load testing on adbuffer: keep-alive on and
// off with ab and wrk, and what becomes of the client's ports.
func Rules(ctx context.Context, e *engine.Env) (*results.Report, error) {
	r := e.Report("rules", "Load-testing rules of thumb",
		"What do the usual tools say with keep-alive and without, and do ports run out?")
	if !e.Has(r, "ab") {
		return nil, fmt.Errorf("ab: %w: apt-get install apache2-utils", rig.ErrMissing)
	}
	up, err := e.Rig.StartConstant(len(load.ConstantBody(1000)), e.LoadCores)
	if err != nil {
		return nil, err
	}
	proxy, err := e.Rig.StartAdbuffer(ctx, e.Adbuffer, engine.Config{Server: []string{"health_path: /health"},
		SSPs: []engine.SSPConfig{{Name: "ssp", URL: up.URL, Protocol: "http1"}}}.YAML(), e.ProxyCores, "GOMAXPROCS=1")
	if err != nil {
		return nil, err
	}
	base := "http://" + proxy.Addr
	n := e.Count(100_000, 2_000)
	const conns = 200
	k := &rules{report: r, pid: proxy.PID}
	k.table = results.Table{Title: fmt.Sprintf("adbuffer on one core, %d connections", conns),
		Columns: []string{"tool", "answers", "keep-alive", "requests/s", "p50 ms", "p99 ms", "failed", "CPU µs/request", "TIME_WAIT sockets"}}
	k.table.AddTheirs("four cores, PHP", "hello world", "on", "80 000–160 000", "", "", "", "", "")
	k.table.AddTheirs("four cores, PHP", "hello world", "off", "10 000–30 000", "", "", "", "", "ports run out at ~28 000")
	k.chart = results.Chart{Title: "Requests/s with keep-alive and without", Kind: "bar", Y: "requests/s", Series: []results.Series{{Name: "on"}, {Name: "off"}}}
	for _, answers := range []struct{ name, path string }{{"own (health_path)", "/health"}, {"forwarded", "/fillbuffer?pub=1"}} {
		for _, keepAlive := range []bool{true, false} {
			e.Say("rules: ab, %s answers, keep-alive %v", answers.name, keepAlive)
			// Without keep-alive one connection each, well beyond the port range where
			// the size allows.
			err := k.measure("ab", answers.name, keepAlive, func() (rig.Load, error) {
				return rig.AB(ctx, base+answers.path, n, conns, keepAlive, e.LoadCores)
			})
			if err != nil {
				return nil, err
			}
		}
		if !e.Has(r, "wrk") {
			continue
		}
		for _, keepAlive := range []bool{true, false} {
			e.Say("rules: wrk, %s answers, keep-alive %v", answers.name, keepAlive)
			t := engine.Get(answers.path)
			if !keepAlive {
				t.Headers = append(t.Headers, closeField)
			}
			err := k.measure("wrk", answers.name, keepAlive, func() (rig.Load, error) {
				return rig.WRK(ctx, e.Rig.Dir, base, t, conns, e.Time(10*time.Second, time.Second), e.LoadCores)
			})
			if err != nil {
				return nil, err
			}
		}
	}
	reuse, ports := load.Sysctl("net/ipv4/tcp_tw_reuse"), load.Sysctl("net/ipv4/ip_local_port_range")
	r.Notes = append(r.Notes, fmt.Sprintf("net.ipv4.tcp_tw_reuse is %s (0 off, 1 on, 2 on for loopback), local ports %s, at most %d sockets in TIME_WAIT at the end of a run.", reuse, ports, k.mostTimeWait))
	if reuse == "1" || reuse == "2" {
		r.Verdicts = append(r.Verdicts, results.Verdict{Promise: "where the kernel reuses ports in TIME_WAIT, no request fails for want of a port, with keep-alive or without", Held: k.failed == 0,
			Words: fmt.Sprintf("%d of %s requests failed; %s of them came without keep-alive.", k.failed, results.Number(float64(k.requests)), results.Number(float64(k.fresh)))})
	}
	on, off := k.rates["ab own (health_path) true"], k.rates["ab own (health_path) false"]
	r.Verdicts = append(r.Verdicts, results.Verdict{Promise: "keep-alive is worth more than any other setting of a client", Held: on > off,
		Words: fmt.Sprintf("ab: %s requests/s with it, %s without.", results.Number(on), results.Number(off))})
	r.Tables, r.Charts = []results.Table{k.table}, []results.Chart{k.chart}
	return e.Done(r), nil
}

type rules struct {
	report       *results.Report
	pid          int
	table        results.Table
	chart        results.Chart
	rates        map[string]float64
	failed       int
	requests     int
	fresh        int // requests without keep-alive
	mostTimeWait int
}

func (k *rules) measure(tool, answers string, keepAlive bool, run func() (rig.Load, error)) error {
	before, err := cpuOf(k.pid)
	if err != nil {
		return err
	}
	l, err := run()
	if err != nil {
		return fmt.Errorf("%s, %s answers: %w", tool, answers, err)
	}
	after, err := cpuOf(k.pid)
	if err != nil {
		return err
	}
	waiting := load.TimeWait()
	k.mostTimeWait = max(k.mostTimeWait, waiting)
	k.failed += l.Failed
	k.requests += l.Requests + l.Failed
	onOff, series := "on", 0
	if !keepAlive {
		onOff, series = "off", 1
		k.fresh += l.Requests + l.Failed
	}
	label := tool + ", " + answers
	if keepAlive {
		k.chart.Labels = append(k.chart.Labels, label)
	}
	if last := len(k.chart.Labels) - 1; len(l.Doubts()) > 0 {
		k.chart.Labels[last] = results.Mark(label, l.Doubts()) // of the pair
	}
	k.chart.Series[series].Values = append(k.chart.Series[series].Values, l.Rate)
	if k.rates == nil {
		k.rates = map[string]float64{}
	}
	k.rates[fmt.Sprintf("%s %s %v", tool, answers, keepAlive)] = l.Rate
	k.report.Doubt(fmt.Sprintf("%s, keep-alive %s", label, onOff), l.Doubts())
	k.table.Add(l.Doubts(), tool, answers, onOff, l.Rate, l.P50, l.P99, l.Failed, (after-before).Seconds()*1e6/float64(max(l.Requests, 1)), waiting)
	return nil
}
