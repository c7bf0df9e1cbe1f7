package tests

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

// row returns the row of a program and a way. The row has no rounds if it was not measured or is void.
func (c *comparison) row(peer, way string) *peerRow {
	i := slices.IndexFunc(c.rows, func(r *peerRow) bool { return r.peer == peer && r.way == way && r.void == "" })
	if i < 0 {
		return new(peerRow)
	}
	return c.rows[i]
}

// spread returns the median of figures, and the lowest and the highest figure if they differ.
func spread(figures []float64) string {
	median := results.Number(rig.Median(figures))
	if len(figures) < 2 || slices.Min(figures) == slices.Max(figures) {
		return median
	}
	return fmt.Sprintf("%s (%s–%s)", median, results.Number(slices.Min(figures)), results.Number(slices.Max(figures)))
}

// allDoubts returns the doubts about the loads of a row.
func (r *peerRow) allDoubts() []string {
	if r.void != "" {
		return []string{"void: " + r.void}
	}
	all := slices.Clone(r.doubts)
	for load, of := range []string{"", "fixed: ", "fast: "} {
		for _, d := range r.rounds[load].doubts() {
			all = append(all, of+d)
		}
	}
	return distinct(all)
}

// show adds the tables.
func (c *comparison) show() {
	c.summarize()
	for _, p := range [][2]string{{"h1", "HTTP/1.1 to the upstream"}, {"h2tls", "HTTP/2 over TLS to the upstream"},
		{"h1tls", "HTTP/1.1 over TLS to the upstream"}} {
		c.table(p[1], p[0], true)
	}
	for _, w := range c.clientWays(peerConns) {
		c.table("Clients: "+w.title, w.name, false)
	}
	c.showFanOuts()
	if len(c.holding) > 0 {
		t := c.Rep.Table(fmt.Sprintf("memory with %d idle clients", c.idle), "proxy", "before", "with them",
			"KiB a client")
		for _, r := range c.holding {
			if r.void != "" {
				t.Add([]string{"void: " + r.void}, r.peer+" idle "+r.kind, "void")
				continue
			}
			t.Add(nil, r.peer+" idle "+r.kind, results.MiB(r.before), results.MiB(r.with), r.perClient)
		}
	}
}

// table shows all rows of a way, the cheapest first. The rows of the way h1 include pipelining.
func (c *comparison) table(title, way string, upstream bool) {
	heads := []string{"proxy", "CPU µs/request", "of HAProxy", "requests/s", "p50 ms", "p99 ms", "p99.9 ms",
		"p99 of HAProxy", "p99.9 of HAProxy"}
	if upstream {
		heads = append(heads, fmt.Sprintf("at %.0f/s: CPU µs", c.rate), "p50 ms", "p99 ms", "p99.9 ms")
		if way == "h1" {
			heads = append(heads, "at 15 000/s: p99 ms", "p99.9 ms")
		}
		heads = append(heads, "memory")
	}
	rows := slices.DeleteFunc(slices.Clone(c.rows), func(r *peerRow) bool {
		return r.way != way && (way != "h1" || r.way != "pipelined")
	})
	if len(rows) == 0 {
		return
	}
	cost := func(r *peerRow) float64 {
		if r.void != "" || len(r.rounds[saturated]) == 0 {
			return math.Inf(1)
		}
		return r.rounds[saturated].median(cpuUs)
	}
	slices.SortStableFunc(rows, func(a, b *peerRow) int { return cmp.Compare(cost(a), cost(b)) })
	t := c.Rep.Table(title, heads...)
	base := c.row("haproxy", way)
	for _, r := range rows {
		name := r.peer
		if way == "h1" {
			name += " " + r.way
		}
		if r.void != "" {
			t.Add(r.allDoubts(), name, "void")
			continue
		}
		full, slow, quick := r.rounds[saturated], r.rounds[fixed], r.rounds[fast]
		ratio := func(figure func(*rig.Figures) float64) string {
			return spread(full.ratios(base.rounds[saturated], figure))
		}
		cells := []any{name, spread(full.values(cpuUs)), ratio(cpuUs), full.median(func(f *rig.Figures) float64 { return f.Rate }),
			full.median(p50), full.median(p99), full.median(p999), ratio(p99), ratio(p999)}
		if upstream {
			cells = append(cells, slow.median(cpuUs), slow.median(p50), slow.median(p99), slow.median(p999))
			if way == "h1" {
				cells = append(cells, quick.median(p99), quick.median(p999))
			}
			memory := full.values(func(f *rig.Figures) float64 { return float64(f.RSS) })
			cells = append(cells, results.MiB(int64(slices.Max(memory))))
		}
		t.Add(r.allDoubts(), cells...)
	}
}

// summarize adds the table of the README: medians of the rounds, with the lowest and the highest figure.
func (c *comparison) summarize() {
	t := c.Rep.Table(fmt.Sprintf("CPU µs to forward a request, by the protocol to the upstream (median of %d "+
		"rounds, least–most), and KiB of an idle client", c.rounds),
		"proxy", "HTTP/1.1", "pipelined", "HTTP/1.1 over TLS", "HTTP/2 over TLS", "idle, cleartext", "TLS", "HTTP/2")
	t.Summary = true
	for _, peer := range peerNames() {
		if !slices.ContainsFunc(c.rows, func(r *peerRow) bool { return r.peer == peer }) {
			continue
		}
		cells := []any{peer}
		for _, way := range []string{"h1", "pipelined", "h1tls", "h2tls"} {
			cells = append(cells, spread(c.row(peer, way).rounds[saturated].values(cpuUs)))
		}
		for _, kind := range idleKinds {
			client := math.NaN()
			for _, r := range c.holding {
				if r.peer == peer && r.kind == kind && r.void == "" {
					client = r.perClient
				}
			}
			cells = append(cells, client)
		}
		t.Add(nil, cells...)
	}
}

// judge compares adbuffer with HAProxy round by round. A promise whose rows have no figures gets no verdict.
func (c *comparison) judge() {
	for _, p := range []struct {
		text, ours, theirs, unit string
		load                     int
		figure                   func(*rig.Figures) float64
		limit                    float64
	}{
		{"over pipelined HTTP/1, a forwarded request costs less CPU than in HAProxy", "pipelined", "h1", "µs",
			saturated, cpuUs, 1},
		{"over HTTP/2 and TLS, a forwarded request costs at most 1.1 of HAProxy's CPU", "h2tls", "h2tls", "µs",
			saturated, cpuUs, 1.1},
		{"p99 at saturation, over exclusive HTTP/1 with 64 clients, is at most 1.5 of HAProxy's", "h1", "h1", "ms",
			saturated, p99, 1.5},
		{"p99.9 at 15 000 requests/s, over exclusive HTTP/1, is at most 1.3 of HAProxy's", "h1", "h1", "ms", fast,
			p999, 1.3},
	} {
		ours, theirs := c.row("adbuffer", p.ours).rounds[p.load], c.row("haproxy", p.theirs).rounds[p.load]
		ratio := rig.Median(ours.ratios(theirs, p.figure))
		if !math.IsNaN(ratio) {
			c.Rep.Promise(p.text, ratio <= p.limit, slices.Concat(ours, theirs).doubts(), "adbuffer: %v %s, HAProxy: %v %s, ratio %v.",
				ours.median(p.figure), p.unit, theirs.median(p.figure), p.unit, ratio)
		}
	}
}
