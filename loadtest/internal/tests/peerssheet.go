package tests

import (
	"fmt"

	"adbuffer/loadtest/internal/stage"
)

// peerPromises compare adbuffer with HAProxy round by round.
func peerPromises(conns int) (out []stage.Promise) {
	for _, p := range []struct {
		text, ours, theirs, unit string
		limit                    float64
	}{
		{"over pipelined HTTP/1, a forwarded request costs less CPU than in HAProxy", "pipelined:cpu_us", "h1:cpu_us", "µs", 1},
		{"over HTTP/2 and TLS, a forwarded request costs at most 1.1 of HAProxy's CPU", "h2tls:cpu_us", "h2tls:cpu_us", "µs", 1.1},
		{fmt.Sprintf("p99 at saturation, over exclusive HTTP/1 with %d clients, is at most 1.5 of HAProxy's", conns), "h1:p99", "h1:p99", "ms", 1.5},
		{"p99.9 at 15 000 requests/s, over exclusive HTTP/1, is at most 1.3 of HAProxy's", "h1:fast.p999", "h1:fast.p999", "ms", 1.3},
	} {
		ours, theirs := "adbuffer "+p.ours, "haproxy "+p.theirs
		out = append(out, stage.Promise{Doubtful: true, Text: p.text, If: fmt.Sprintf("%s / %s <= %v", ours, theirs, p.limit),
			Words: fmt.Sprintf("adbuffer: {%s} %s, HAProxy: {%s} %s, ratio {%s / %s}.", ours, p.unit, theirs, p.unit, ours, theirs)})
	}
	return out
}

// show adds the tables and charts.
func (c *comparison) show() {
	t := c.test
	latency := []stage.Column{{Head: "p50 ms", Value: "p50"}, {Head: "p99 ms", Value: "p99"}, {Head: "p99.9 ms", Value: "p999"}}
	costs := append([]stage.Column{{Head: "CPU µs/request", Value: "cpu_us"}, {Head: "of HAProxy", Value: "cpu_us / base:cpu_us"}, {Head: "requests/s", Value: "rate"}}, latency...)
	costs = append(costs, stage.Column{Head: "p99 of HAProxy", Value: "p99 / base:p99"}, stage.Column{Head: "p99.9 of HAProxy", Value: "p999 / base:p999"})
	t.Tables = append(t.Tables,
		stage.Table{Summary: true, Title: "CPU µs to forward a request, by the protocol to the upstream, and KiB of an idle client", Heads: []string{"proxy"}, Of: PeerNames(), Columns: []stage.Column{
			{Head: "HTTP/1.1", Value: "@ h1:cpu_us"}, {Head: "pipelined", Value: "@ pipelined:cpu_us"}, {Head: "HTTP/1.1 over TLS", Value: "@ h1tls:cpu_us"}, {Head: "HTTP/2 over TLS", Value: "@ h2tls:cpu_us"},
			{Head: "idle, cleartext", Value: "@ idle cleartext:kib"}, {Head: "TLS", Value: "@ idle TLS:kib"}, {Head: "HTTP/2", Value: "@ idle HTTP/2:kib"}}},
		stage.Table{Summary: true, Title: "CPU of a request by the way of its clients, and the tail over exclusive HTTP/1: ratios to HAProxy", Heads: []string{"proxy"}, Of: PeerNames(), Columns: []stage.Column{
			{Head: "64 clients", Value: ratio("h1", "cpu_us")}, {Head: "1 000 clients", Value: ratio("1000 clients", "cpu_us")}, {Head: "TLS", Value: ratio("tls", "cpu_us")}, {Head: "HTTP/2, 64 × 1", Value: ratio("h2 64x1", "cpu_us")},
			{Head: "HTTP/2, 8 × 8", Value: ratio("h2 8x8", "cpu_us")}, {Head: "new TLS connections", Value: ratio("new tls", "cpu_us")}, {Head: "p99, saturated", Value: ratio("h1", "p99")}, {Head: "p99.9 at 15 000/s", Value: ratio("h1", "fast.p999")}}})
	fixed := fmt.Sprintf("at %.0f/s: ", c.Rate)
	for _, p := range [][2]string{{"h1", "HTTP/1.1 to the upstream"}, {"h2tls", "HTTP/2 over TLS to the upstream"}, {"h1tls", "HTTP/1.1 over TLS to the upstream"}} {
		columns := append(costs[:len(costs):len(costs)], stage.Column{Head: fixed + "CPU µs", Value: "fixed.cpu_us"}, stage.Column{Head: "p50 ms", Value: "fixed.p50"}, stage.Column{Head: "p99 ms", Value: "fixed.p99"}, stage.Column{Head: "p99.9 ms", Value: "fixed.p999"})
		if p[0] == "h1" {
			columns = append(columns, stage.Column{Head: "at 15 000/s: p99 ms", Value: "fast.p99"}, stage.Column{Head: "p99.9 ms", Value: "fast.p999"})
		}
		columns = append(columns, stage.Column{Head: "memory", Value: "rss", As: "MiB"})
		t.Tables = append(t.Tables, stage.Table{Title: p[1], Group: p[0], SortBy: "cpu_us", Heads: []string{"proxy"}, Columns: columns})
		cpu := []stage.Series{{Name: "at saturation", Value: "cpu_us"}}
		if c.Rate > 0 {
			cpu = append(cpu, stage.Series{Name: fixed, Value: "fixed.cpu_us"})
		}
		t.Charts = append(t.Charts, stage.Chart{Title: "CPU a request: " + p[1], Group: p[0], Y: "µs", Series: cpu},
			stage.Chart{Title: "One core carries: " + p[1], Group: p[0], Y: "requests/s", Series: []stage.Series{{Name: "requests/s", Value: "rate"}}})
		if c.Rate > 0 {
			t.Charts = append(t.Charts, stage.Chart{Title: "Latency " + fixed + p[1], Group: p[0], Y: "ms", LogY: true,
				Series: []stage.Series{{Name: "p50", Value: "fixed.p50"}, {Name: "p99", Value: "fixed.p99"}, {Name: "p99.9", Value: "fixed.p999"}}})
		}
	}
	for _, w := range c.clientWays() {
		t.Tables = append(t.Tables, stage.Table{Title: "Clients: " + w.title, Group: w.name, SortBy: "cpu_us", Heads: []string{"proxy"}, Columns: costs})
		t.Charts = append(t.Charts, stage.Chart{Title: "CPU a request: " + w.title, Group: w.name, Y: "µs", Series: []stage.Series{{Name: "at saturation", Value: "cpu_us"}}})
	}
	t.Tables = append(t.Tables, stage.Table{Title: fmt.Sprintf("memory with %d idle clients", c.Idle), Group: "idle", Heads: []string{"proxy"}, Columns: []stage.Column{
		{Head: "before", Value: "before.rss", As: "MiB"}, {Head: "with them", Value: "with.rss", As: "MiB"}, {Head: "KiB a client", Value: "kib"}}})
	for i := range t.Trials {
		if trial := &t.Trials[i]; trial.Group == "idle" || trial.Group == "h1" {
			trial.Cells = []any{trial.Name}
		}
	}
}

// ratio compares each program with HAProxy.
func ratio(trial, value string) string {
	return fmt.Sprintf("@ %s:%s / haproxy %s:%s", trial, value, trial, value)
}
