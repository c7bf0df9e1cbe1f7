package reports

import (
	"fmt"
	"slices"

	"adbuffer/loadtest/internal/results"
)

// protocols in the order of the tables.
var protocols = []struct{ name, title string }{
	{"h1", "HTTP/1.1 to the upstream"},
	{"pipelined", ""},
	{"h2tls", "HTTP/2 over TLS to the upstream"},
	{"h1tls", "HTTP/1.1 over TLS to the upstream"},
}

// tabulate turns the figures into tables, charts and verdicts.
func tabulate(r *results.Report, o PeersOptions, rows []*figures) {
	for _, p := range protocols {
		if p.title == "" {
			continue // with its like
		}
		var of []*figures
		for _, f := range rows {
			if f.Protocol == p.name || p.name == "h1" && f.Protocol == "pipelined" {
				of = append(of, f)
			}
		}
		if len(of) == 0 {
			continue
		}
		slices.SortStableFunc(of, func(a, b *figures) int { return order(a) - order(b) })
		r.Tables = append(r.Tables, table(r, o, p.title, of))
		r.Charts = append(r.Charts, charts(o, p.title, of)...)
	}
	memory(r, o, rows)
	for _, pair := range []struct{ ours, theirs, promise string }{
		{"adbuffer pipelined", "haproxy h1", "over pipelined HTTP/1, a forwarded request costs less CPU than in HAProxy"},
		{"adbuffer h2tls", "haproxy h2tls", "over HTTP/2 and TLS, a forwarded request costs at most 1.1 of HAProxy's"},
	} {
		verdict(r, rows, pair.ours, pair.theirs, pair.promise)
	}
	r.Notes = append(r.Notes, "Each proxy has a core to itself, wrk, generator and upstream share the other. The request is a GET of about 800 bytes, the answer 1 KB of JSON.",
		"CPU µs a request holds better than requests/s where machines are shared: compare ratios within one run.",
		fmt.Sprintf("Median of %d rounds. At saturation wrk sends over %d connections; at the fixed rate latency counts from when each request was due.", o.Rounds, o.Conns))
}

// order puts the cheapest first, and what is void last.
func order(f *figures) int {
	if f.void != "" || len(f.saturated) == 0 {
		return 1 << 30
	}
	return int(median(f.saturated).cpuPerRequest * 1000)
}

func table(r *results.Report, o PeersOptions, title string, rows []*figures) results.Table {
	t := results.Table{Title: title, Columns: []string{"proxy", "CPU µs/request", "of HAProxy", "requests/s", "p50 ms", "p99 ms", "p99.9 ms",
		fmt.Sprintf("at %s/s: CPU µs", results.Number(o.Rate)), "p50 ms", "p99 ms", "p99.9 ms", "memory"}}
	base := 0.0
	for _, f := range rows {
		if f.Program == "haproxy" && f.void == "" {
			base = median(f.saturated).cpuPerRequest
		}
	}
	for _, f := range rows {
		if f.void != "" {
			t.Add([]string{f.void}, f.Name, "void", "", "", "", "", "", "", "", "", "", "")
			r.Doubt(f.Name, []string{"void: " + f.void})
			continue
		}
		s, x := median(f.saturated), median(f.fixed)
		ratio := "–"
		if base > 0 {
			ratio = results.Number(s.cpuPerRequest / base)
		}
		r.Doubt(f.Name, f.doubts)
		t.Add(f.doubts, f.Name, s.cpuPerRequest, ratio, s.rate, s.p50, s.p99, s.p999, x.cpuPerRequest, x.p50, x.p99, x.p999, results.MiB(f.rssBusy))
	}
	return t
}

func charts(o PeersOptions, title string, rows []*figures) []results.Chart {
	cpu := results.Chart{Title: "CPU a request: " + title, Kind: "bar", Y: "µs", Series: []results.Series{{Name: "at saturation"}, {Name: fmt.Sprintf("at %s/s", results.Number(o.Rate))}}}
	rate := results.Chart{Title: "One core carries: " + title, Kind: "bar", Y: "requests/s", Series: []results.Series{{Name: "requests/s"}}}
	latency := results.Chart{Title: fmt.Sprintf("Latency at %s requests/s: %s", results.Number(o.Rate), title), Kind: "bar", Y: "ms", LogY: true, Series: []results.Series{{Name: "p50"}, {Name: "p99"}, {Name: "p99.9"}}}
	for _, f := range rows {
		if f.void != "" {
			continue
		}
		s, x := median(f.saturated), median(f.fixed)
		for _, c := range []*results.Chart{&cpu, &rate, &latency} {
			c.Labels = append(c.Labels, results.Mark(f.Name, f.doubts))
		}
		cpu.Series[0].Values = append(cpu.Series[0].Values, s.cpuPerRequest)
		cpu.Series[1].Values = append(cpu.Series[1].Values, x.cpuPerRequest)
		rate.Series[0].Values = append(rate.Series[0].Values, s.rate)
		for i, v := range []float64{x.p50, x.p99, x.p999} {
			latency.Series[i].Values = append(latency.Series[i].Values, v)
		}
	}
	if len(cpu.Labels) == 0 {
		return nil
	}
	if o.Rate <= 0 {
		cpu.Series = cpu.Series[:1]
		return []results.Chart{cpu, rate}
	}
	return []results.Chart{cpu, rate, latency}
}

func memory(r *results.Report, o PeersOptions, rows []*figures) {
	t := results.Table{Title: fmt.Sprintf("memory with %s idle clients", results.Number(float64(o.Idle))), Columns: []string{"proxy", "before", "with them", "KiB a client"}}
	chart := results.Chart{Title: t.Title, Kind: "bar", Y: "MiB", Series: []results.Series{{Name: "before"}, {Name: "with idle clients"}}}
	for _, f := range rows {
		if f.rssIdle == 0 {
			continue
		}
		t.Add(nil, f.Program, results.MiB(f.rssBefore), results.MiB(f.rssIdle), float64(f.rssIdle-f.rssBefore)/1024/float64(o.Idle))
		chart.Labels = append(chart.Labels, f.Program)
		chart.Series[0].Values = append(chart.Series[0].Values, float64(f.rssBefore)/(1<<20))
		chart.Series[1].Values = append(chart.Series[1].Values, float64(f.rssIdle)/(1<<20))
	}
	if len(t.Rows) > 0 {
		r.Tables = append(r.Tables, t)
		r.Charts = append(r.Charts, chart)
	}
}

// limits are the ratios that the promises allow.
var limits = map[string]float64{"adbuffer pipelined": 1, "adbuffer h2tls": 1.1}

func verdict(r *results.Report, rows []*figures, ours, theirs, promise string) {
	find := func(name string) *figures {
		i := slices.IndexFunc(rows, func(f *figures) bool { return f.Name == name && f.void == "" && len(f.saturated) > 0 })
		if i < 0 {
			return nil
		}
		return rows[i]
	}
	a, b := find(ours), find(theirs)
	if a == nil || b == nil {
		return // not measured: there is nothing to say
	}
	// Rounds are compared pairwise, since the machine's mood changes.
	var ratios []float64
	for i := range min(len(a.saturated), len(b.saturated)) {
		ratios = append(ratios, a.saturated[i].cpuPerRequest/b.saturated[i].cpuPerRequest)
	}
	slices.Sort(ratios)
	ratio := ratios[len(ratios)/2]
	r.Verdicts = append(r.Verdicts, results.Verdict{Promise: promise, Held: ratio <= limits[ours], Doubted: a.unsure || b.unsure,
		Words: fmt.Sprintf("%s: %.1f µs, %s: %.1f µs, ratio %.2f.", ours, median(a.saturated).cpuPerRequest, theirs, median(b.saturated).cpuPerRequest, ratio)})
}
