package reports

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/engine"
)

// SoakOptions of a soak.
type SoakOptions struct {
	// Requests each way; 0 is a million, scaled.
	Requests int
}

// fullSize is how many requests each way has at scale 1.
const fullSize = 1_000_000

// perConnection is nginx's keepalive_requests.
const perConnection = 1000

// way is one way of adbuffer to nginx.
type way struct {
	name, id string
	protocol string // as adbuffer's configuration has it
	speaks   string // as adbuffer's metrics call what it must come to
	conns    int    // max_conns, fewer where so many would not come to their end
	pool     string // further keys
	tls      bool
	clients  int // connections to adbuffer, a request at a time on each
}

// Clients outnumber places, so that requests queue and pipelines are full.
var ways = []way{
	{name: "HTTP/1", id: "http1", protocol: "http1", speaks: "http1", conns: 32, clients: 64},
	{name: "HTTP/1 pipelined, depth 8", id: "depth8", protocol: "http1-pipelined", speaks: "http1-pipelined", conns: 8, pool: "pipeline_depth: 8, ", clients: 96},
	{name: "HTTP/1 pipelined, depth 64", id: "depth64", protocol: "http1-pipelined", speaks: "http1-pipelined", conns: 3, pool: "pipeline_depth: 64, pipeline_methods: all, ", clients: 256},
	{name: "HTTP/2 over TLS, by ALPN", id: "http2", protocol: "auto", speaks: "http2", conns: 4, tls: true, clients: 256},
}

// outcome is what one way came to.
type outcome struct {
	sent  int // requests
	whole load.Summary
	seen  account // by nginx
	// opened is adbuffer's connections to nginx; others are those among them
	// that speak something else than they must.
	opened, others float64
	again          float64 // requests that adbuffer sent again, by its own count
	rss            int64   // of adbuffer, at the end
}

// Soak sends the requests each way.
func Soak(ctx context.Context, e *engine.Env, o SoakOptions) (*results.Report, error) {
	n := o.Requests
	if n == 0 {
		n = e.Count(fullSize, 2*perConnection)
	}
	count := whole(n)
	r := e.Report("soak", "Every request accounted for",
		"Does each answer reach the request that asked for it, and does each request reach the SSP exactly once, while a real nginx closes its connections all the time?")
	r.Versions["nginx"] = results.Version("nginx", "/usr/sbin/nginx")
	t := results.Table{Title: fmt.Sprintf("%s requests each way, a quarter of them POSTs, to nginx with keepalive_requests %d", count, perConnection),
		Columns: []string{"way", "answered with their number", "failed", "reached nginx once", "more often", "never", "connections", "sent again", "requests/s", "p99 ms", "adbuffer MiB"}}
	chart := results.Chart{Title: "Requests a second, all of them checked", Kind: "bar", Y: "requests/s", Series: []results.Series{{Name: "requests/s"}}}
	for _, w := range ways {
		e.Say("soak: %s requests over %s", count, w.name)
		out, err := w.run(ctx, e, n)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
		t.Add(nil, w.name, whole(out.whole.Answered), whole(out.whole.Failed), whole(out.seen.once), whole(out.seen.twice), whole(out.seen.never), whole(out.seen.connections), whole(out.again),
			out.whole.Rate, out.whole.Latency.P99, results.MiB(out.rss))
		chart.Labels = append(chart.Labels, w.name)
		chart.Series[0].Values = append(chart.Series[0].Values, out.whole.Rate)
		r.Verdicts = append(r.Verdicts, out.verdict(w))
	}
	r.Notes = []string{
		"adbuffer, nginx and the generator share all cores; what is measured is that nothing is lost, mixed up or repeated, not speed.",
		"Sent again are requests that nginx had not processed, as it closed the connection they were on.",
	}
	r.Tables, r.Charts = []results.Table{t}, []results.Chart{chart}
	return e.Done(r), nil
}

// run starts both sides, sends the requests, and compares their books.
func (w way) run(ctx context.Context, e *engine.Env, n int) (*outcome, error) {
	up, err := startUpstream(ctx, e.Rig, w)
	if err != nil {
		return nil, err
	}
	defer up.process.Stop()
	conns := min(w.conns, max(1, n/(4*perConnection)))
	proxy, err := e.Rig.StartAdbuffer(ctx, e.Adbuffer, engine.Config{Deadline: "30s", SSPs: []engine.SSPConfig{{Name: "nginx", URL: up.url, Protocol: w.protocol, CAFile: up.caFile,
		Pool: w.pool + fmt.Sprintf("max_conns: %[1]d, max_http2_conns: %[1]d, max_pending: 4096, pending_timeout: 20s", conns)}}}.YAML(), "")
	if err != nil {
		return nil, err
	}
	defer proxy.Stop()
	plan := engine.ClosedLoop(proxy.Addr, w.clients, n, 12*time.Hour,
		load.Template{Name: "GET", Method: "GET", Path: "/fillbuffer?cb=" + load.Number, Weight: 3},
		load.Template{Name: "POST", Method: "POST", Path: "/fillbuffer?cb=" + load.Number, JSON: true, Body: load.Size{P50: 1300, P95: 3000}})
	plan.Echo, plan.EchoBody = true, true
	m, err := e.GenerateWatched(ctx, plan, proxy.PID, w.progress(e, n))
	if err != nil {
		return nil, err
	}
	out := &outcome{sent: n, whole: m.Whole, rss: m.After.RSS}
	if err := out.readMetrics(proxy, w); err != nil {
		return nil, err
	}
	// nginx writes what it has not logged yet when it ends.
	proxy.Stop()
	up.process.Stop()
	log, err := os.Open(up.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	out.seen, err = readLog(log, n)
	return out, err
}

// readMetrics asks adbuffer what it has counted.
func (out *outcome) readMetrics(proxy *rig.Adbuffer, w way) error {
	var speaking float64
	for _, m := range []struct {
		to     *float64
		metric string
		labels []string
	}{
		{&out.opened, "adbuffer_pool_connections_opened_total", nil},
		{&speaking, "adbuffer_pool_connections_opened_total", []string{fmt.Sprintf("protocol=%q", w.speaks)}},
		{&out.again, "adbuffer_retries_total", nil},
	} {
		v, err := proxy.Metric(m.metric, m.labels...)
		if err != nil {
			return err
		}
		*m.to = v
	}
	out.others = out.opened - speaking
	return nil
}

// progress says at every tenth of the requests how far it got.
func (w way) progress(e *engine.Env, n int) func(load.Progress) {
	answered, said := 0, 0
	return func(p load.Progress) {
		answered += int(p.Answered)
		if tenth := answered * 10 / n; tenth > said && tenth < 10 {
			said = tenth
			e.Say("soak: %s: %s answered, %d errors in the last second", w.name, whole(answered), p.Errors)
		}
	}
}

// verdict says whether everything was accounted for, and if not, what was not.
func (out *outcome) verdict(w way) results.Verdict {
	v := results.Verdict{Promise: w.name + ": every request is answered, by its own answer, and reaches the SSP exactly once"}
	var faults []string
	fault := func(broken bool, format string, args ...any) {
		if broken {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	n := uint64(out.sent)
	fault(out.whole.Answered != n || out.whole.Failed > 0, "%d of %d were answered with their number, %d failed (%v)", out.whole.Answered, n, out.whole.Failed, out.whole.Errors)
	fault(out.seen.twice > 0, "%d reached nginx more than once, such as %v", out.seen.twice, out.seen.repeated)
	fault(out.seen.never > 0, "%d never reached nginx", out.seen.never)
	fault(out.seen.foreign > 0, "nginx saw %d requests that no client sent, such as %q", out.seen.foreign, out.seen.stranger)
	fault(out.others > 0, "%.0f of %.0f connections do not speak %s", out.others, out.opened, w.speaks)
	// Else nothing was shown.
	fault(out.seen.longest > perConnection || out.sent >= 4*perConnection && out.seen.longest < perConnection,
		"nginx closed no connection after %d requests: %d of them carried up to %d", perConnection, out.seen.connections, out.seen.longest)
	if v.Held = len(faults) == 0; !v.Held {
		v.Words = faultList(faults)
		return v
	}
	v.Words = fmt.Sprintf("%s of %s, over %s connections of at most %d requests; %s requests were sent again, since nginx had closed before it processed them.",
		whole(out.seen.once), whole(n), whole(out.seen.connections), out.seen.longest, whole(out.again))
	return v
}

// whole writes a number of things.
func whole[N int | uint64 | float64](n N) string {
	if n < 1000 {
		return strconv.Itoa(int(n))
	}
	return results.Number(float64(n))
}
