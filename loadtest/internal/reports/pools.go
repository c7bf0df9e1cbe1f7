package reports

import (
	"context"
	"fmt"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/engine"
)

// Pools holds Little's law against adbuffer: with N places and an SSP that takes
// X, throughput is N / X, until a core is full.
func Pools(ctx context.Context, e *engine.Env) (*results.Report, error) {
	r := e.Report("pools", "Pools, their size, and the SSP's latency",
		"How many places must a pool have, and what happens without one?")
	p := &pools{Env: e, report: r, sizes: []int{100, 200, 500, 1000, 2000},
		latencies: []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, time.Second}}
	if e.Scale < 0.5 {
		p.sizes = []int{100, 500, 2000}
		p.latencies = []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second}
	}
	p.table = results.Table{Title: "as many clients as places", Columns: []string{"upstream", "places N", "latency X", "N / X per s", "measured per s", "of N / X", "p50 ms", "p99 ms", "open connections", "TLS handshakes", "adbuffer memory"}}
	p.chart = results.Chart{Title: "Throughput against places, by the SSP's latency (http)", Kind: "line", X: "places N", Y: "requests/s", LogX: true, LogY: true}
	for _, way := range poolWays {
		if err := p.way(ctx, way); err != nil {
			return nil, fmt.Errorf("%s: %w", way.name, err)
		}
	}
	if err := p.overflow(ctx); err != nil {
		return nil, fmt.Errorf("overflow: %w", err)
	}
	theirs := results.Table{Title: "what others measured", Columns: []string{"setting", "requests/s"}}
	theirs.AddTheirs("no pool, http, 10 or 100 ms", "~3 000, whatever the latency")
	theirs.AddTheirs("no pool, https, 100 or 1 000 ms", "~300")
	theirs.AddTheirs("pool of 100, https, 10 ms", "400 → ~4 000")
	theirs.AddTheirs("pool of 100, 1 s", "100 = N / X")
	theirs.AddTheirs("pool of 100, 500 ms", "200 = N / X")
	r.Notes = append(r.Notes, "As many clients as places send as fast as answers come, to a pool that is open before. TLS handshakes are those since the latency was set.",
		"h2 has its places on four connections. Without a pool, every request has a connection of its own to the SSP.")
	r.Tables = []results.Table{p.table, p.over, theirs}
	p.chart.Title, p.pooled.Title = results.Mark(p.chart.Title, p.charted), results.Mark(p.pooled.Title, p.pooledDoubts)
	r.Charts = []results.Chart{p.chart, p.pooled}
	r.Verdicts = append(r.Verdicts, results.Verdict{Promise: "throughput is places / latency, on every protocol, until the cores are full", Held: p.worst >= 0.9, Doubted: p.doubted,
		Words: fmt.Sprintf("Where N / X asks for at most 2 000 requests/s, the least was %.0f %% of it (%s).", p.worst*100, p.worstAt)})
	return e.Done(r), nil
}

// poolWay is a way to reach an SSP.
type poolWay struct {
	name     string
	ssp      sspsim.Protocol
	protocol string
	noPool   bool
}

var poolWays = []poolWay{
	{"http", sspsim.HTTP1, "http1", false},
	{"https", sspsim.TLSHTTP1, "http1", false},
	{"h2", sspsim.TLSHTTP2, "http2", false},
	{"no pool, http", sspsim.HTTP1, "http1", true},
	{"no pool, https", sspsim.TLSHTTP1, "http1", true},
}

type pools struct {
	*engine.Env
	report                *results.Report
	sizes                 []int
	latencies             []time.Duration
	table                 results.Table
	over                  results.Table
	chart                 results.Chart // by latency, http
	pooled                results.Chart // by way
	charted, pooledDoubts []string      // doubts about the figures of the charts
	worst                 float64       // measured / expected, where the cores are not the limit
	worstAt               string
	doubted               bool // worst rests on a figure with doubts
}

// modest is the rate up to which the cores are not expected to be the limit.
const modest = 2000

func (p *pools) way(ctx context.Context, way poolWay) error {
	s, err := p.Rig.StartSSP(rig.SSPOptions{Name: way.name, Protocol: way.ssp})
	if err != nil {
		return err
	}
	defer s.Stop()
	sizes := p.sizes
	if way.noPool {
		sizes = p.sizes[:1] // a connection per request: the number at once is all there is
	}
	for _, n := range sizes {
		pool := fmt.Sprintf("max_conns: %d, max_pending: %d, pending_timeout: 30s, max_dials: 64", n, n)
		more := []string{"timeouts: {connect: 10s, tls_handshake: 10s}", "breaker: {enabled: false}"}
		if way.protocol == "http2" {
			// N streams on four connections.
			pool = fmt.Sprintf("max_conns: 4, max_http2_conns: 4, max_streams_per_conn: %d, max_pending: %d, pending_timeout: 30s", n/4, n)
		}
		switch {
		case way.noPool:
			pool += ", max_requests_per_conn: 1"
		case way.protocol == "http2":
			pool += ", min_idle: 4"
		default:
			pool += fmt.Sprintf(", min_idle: %d", n) // what is measured is a warm pool
		}
		proxy, err := p.Rig.StartAdbuffer(ctx, p.Adbuffer, engine.Config{Deadline: "30s", SSPs: []engine.SSPConfig{{Name: "ssp", URL: s.URL, Protocol: way.protocol, CAFile: s.CAFile, Pool: pool, More: more}}}.YAML(), "")
		if err != nil {
			return err
		}
		for _, x := range p.latencies {
			if err := p.cell(ctx, way, s, proxy, n, x); err != nil {
				return fmt.Errorf("%d places, %v: %w", n, x, err)
			}
		}
		proxy.Stop()
	}
	return nil
}

func (p *pools) cell(ctx context.Context, way poolWay, s *rig.SSP, proxy *rig.Adbuffer, n int, x time.Duration) error {
	b := steady(x.String())
	b.Connections.MaxStreams = 1000
	if err := s.Set(b); err != nil {
		return err
	}
	if err := s.Reset(); err != nil {
		return err
	}
	// Long enough for some rounds, of which the first, with its handshakes, is
	// not measured.
	plan := engine.ClosedLoop(proxy.Addr, n, 0, 0, engine.Get("/fillbuffer?pub=1"))
	warm := max(2*x, 300*time.Millisecond)
	length := max(p.Time(10*time.Second, time.Second), 3*x)
	plan.Phases = phases(warm, length)
	expected := float64(n) / x.Seconds()
	generate := p.Generate
	if expected <= modest {
		generate = p.GenerateCalmly // higher rates fill the cores by themselves
	}
	m, err := generate(ctx, plan, 0)
	if err != nil {
		return err
	}
	seen, err := s.Counters()
	if err != nil {
		return err
	}
	used, err := load.Read(proxy.PID)
	if err != nil {
		return err
	}
	share := m.Whole.Rate / expected
	doubts := m.Doubts
	p.report.Doubt(fmt.Sprintf("%s, %d places, %v", way.name, n, x), doubts)
	p.table.Add(doubts, way.name, n, x, expected, m.Whole.Rate, fmt.Sprintf("%.0f %%", share*100), m.Whole.Latency.P50, m.Whole.Latency.P99,
		seen.OpenConnections, seen.Handshakes, results.MiB(used.RSS))
	if !way.noPool && expected <= modest && (p.worstAt == "" || share < p.worst) {
		p.doubted = len(doubts) > 0
		p.worst, p.worstAt = share, fmt.Sprintf("%s, %d places, %v", way.name, n, x)
	}
	p.draw(way, n, x, expected, m.Whole.Rate)
	if way.name == "http" {
		p.charted = append(p.charted, doubts...)
	}
	if n == p.sizes[0] {
		p.pooledDoubts = append(p.pooledDoubts, doubts...)
	}
	return nil
}

// draw adds a figure to the charts.
func (p *pools) draw(way poolWay, n int, x time.Duration, expected, rate float64) {
	if way.name == "http" {
		addPoint(&p.chart, x.String(), false, float64(n), rate)
		addPoint(&p.chart, x.String()+", N / X", true, float64(n), expected)
	}
	if n == p.sizes[0] {
		if p.pooled.Title == "" {
			p.pooled = results.Chart{Title: fmt.Sprintf("%d at once, with and without a pool", n), Kind: "bar", Y: "requests/s", LogY: true}
			for _, w := range poolWays {
				p.pooled.Series = append(p.pooled.Series, results.Series{Name: w.name})
			}
		}
		if way.name == poolWays[0].name {
			p.pooled.Labels = append(p.pooled.Labels, x.String())
		}
		for i, w := range poolWays {
			if w.name == way.name {
				p.pooled.Series[i].Values = append(p.pooled.Series[i].Values, rate)
			}
		}
	}
}

func addPoint(c *results.Chart, series string, dashed bool, x, y float64) {
	for i := range c.Series {
		if c.Series[i].Name == series {
			c.Series[i].Points = append(c.Series[i].Points, results.Point{X: x, Y: y})
			return
		}
	}
	c.Series = append(c.Series, results.Series{Name: series, Dashed: dashed, Points: []results.Point{{X: x, Y: y}}})
}

// overflow asks for more than places and queue hold: those beyond must be told
// so, by an error of its own, and at once.
func (p *pools) overflow(ctx context.Context) error {
	const places, queue, clients = 100, 200, 400
	s, err := p.Rig.StartSSP(rig.SSPOptions{Name: "overflow", Behaviour: steady("500ms")})
	if err != nil {
		return err
	}
	defer s.Stop()
	pool := fmt.Sprintf("max_conns: %d, max_pending: %d, pending_timeout: 30s, max_dials: 100", places, queue)
	proxy, err := p.Rig.StartAdbuffer(ctx, p.Adbuffer, engine.Config{SSPs: []engine.SSPConfig{{Name: "ssp", URL: s.URL, Protocol: "http1", Pool: pool}}}.YAML(), "")
	if err != nil {
		return err
	}
	defer proxy.Stop()
	// Places are all open first, so that no request waits for a dial.
	warm := engine.ClosedLoop(proxy.Addr, places, places, 0, engine.Get("/fillbuffer?pub=1"))
	if _, err := p.Generate(ctx, warm, 0); err != nil {
		return err
	}
	m, err := p.Generate(ctx, engine.ClosedLoop(proxy.Addr, clients, clients, 0, engine.Get("/fillbuffer?pub=1")), 0)
	if err != nil {
		return err
	}
	full := m.Whole.Errors["status 503 proxy/pending_full"]
	other := m.Whole.Failed - full
	p.over = results.Table{Title: "a queue that overflows", Columns: []string{"places", "queue", "requests at once", "answered", "503 pending_full", "other errors", "p50 ms", "max ms"}}
	p.over.AddTheirs(500, 1000, "more than 1 500", "", "refused, with an error of its own", "", "", "")
	p.over.Add(nil, places, queue, clients, m.Whole.Answered, full, other, m.Whole.Latency.P50, m.Whole.Latency.Max)
	p.report.Verdicts = append(p.report.Verdicts, results.Verdict{Promise: "what neither a place nor the queue holds is refused at once, by an error that says so",
		Held:  full == clients-places-queue && other == 0,
		Words: fmt.Sprintf("Of %d requests at once for %d places and a queue of %d, %d were answered, %d got 503 pending_full and %d failed otherwise.", clients, places, queue, m.Whole.Answered, full, other)})
	return nil
}

// phases are a warm-up and what is measured, of a closed loop.
func phases(warm, length time.Duration) []load.Phase {
	return []load.Phase{{Name: "warm-up", Duration: warm, Unrecorded: true}, {Name: "load", Duration: length}}
}
