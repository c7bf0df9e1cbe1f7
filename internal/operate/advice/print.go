package advice

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"adbuffer/internal/ssp/dial"
)

// Write prints the plan for people: a table, and the YAML to paste.
func (plan Plan) Write(w io.Writer) {
	if len(plan) == 1 && !plan[0].measured {
		printOne(w, &plan[0])
	} else {
		printMany(w, plan)
	}
	printYAML(w, plan)
	printed := false
	for i := range plan {
		for _, text := range plan[i].warnings() {
			if !printed {
				fmt.Fprintln(w)
				printed = true
			}
			prefix := ""
			if plan[i].measured {
				prefix = plan[i].name + ": "
			}
			fmt.Fprintf(w, "warning: %s%s\n", prefix, text)
		}
	}
}

func printOne(w io.Writer, p *planned) {
	in, r := &p.in, &p.result
	fmt.Fprintf(w, "%s requests/s over %s, p50 %v, p99 %v, %s %% of the requests may wait\n\n",
		Number(in.Rate), count(in.Replicas, "replica"), in.P50, in.P99, Number(100*in.WaitingShare))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(label, one, all string) { fmt.Fprintf(t, "%s\t%s\t%s\n", label, one, all) }
	each := func(v float64) string { return Number(v * float64(in.Replicas)) }
	row("", "per replica", "the SSP sees")
	row("requests/s (λ)", Number(r.Rate), Number(in.Rate))
	row("a place is held for, mean (W)", rounded(r.MeanHold), "")
	row("places in use on average (L = λ·W)", Number(r.Load), each(r.Load))
	row("pool size, exact Erlang C (N)", Number(float64(r.Places)), each(float64(r.Places)))
	row("pool size, rule of thumb L + 2·√L", fmt.Sprintf("%.0f (%.2f)", math.Ceil(r.RulePlaces), r.RulePlaces), each(r.RulePlaces))
	row("requests that wait with N", Number(100*r.WaitingShare)+" %", "")
	row("mean wait with N", rounded(r.MeanWait), "")
	row("places in use with N", Number(100*r.Saturation)+" %", "")
	row("N is full at", Number(r.FullRate)+" requests/s", each(r.FullRate))
	row(fmt.Sprintf("N is full at, when W is %s", rounded(r.SlowHold)), Number(r.SlowFullRate)+" requests/s", each(r.SlowFullRate))
	row("L + 2·√L is full at that W", Number(r.RuleSlowFullRate)+" requests/s", each(r.RuleSlowFullRate))
	if p.shared() {
		kind := "HTTP/2 connections"
		if p.pipelined() {
			kind = "pipelined connections"
		}
		row(fmt.Sprintf("%s of %d, at least", kind, in.Streams), Number(float64(r.HTTP2Conns)), each(float64(r.HTTP2Conns)))
		row(kind+", at most half full", Number(float64(r.HTTP2GrownConns)), each(float64(r.HTTP2GrownConns)))
	}
	if !p.http2() {
		row("file descriptors, HTTP/1 and its clients", Number(float64(r.FileDescriptors)), "")
		row("ports of an address, HTTP/1", Number(float64(r.PortsPerAddress)), "")
	}
	t.Flush()
}

func printMany(w io.Writer, plan Plan) {
	known := func(n int) string {
		if n == 0 {
			return "?"
		}
		return Number(float64(n))
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "ssp\tprotocol\treplicas\trequests/s\theld (W)\tin use (L)\tat once\tN\tL + 2·√L\tconnections\tnow\tfull at\tfull when slow\tSSP sees\n")
	for i := range plan {
		p, r := &plan[i], &plan[i].result
		_, n := p.sizeSetting()
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%d\t%.2f\t%d\t%s\t%s/s\t%s/s at %s\t%d\n", p.name, p.protocol, p.in.Replicas, Number(r.Rate), rounded(r.MeanHold),
			Number(r.Load), known(p.in.Peak), r.Places, r.RulePlaces, n, known(p.current), Number(r.FullRate), Number(r.SlowFullRate), rounded(r.SlowHold), n*p.in.Replicas)
	}
	t.Flush()
	fmt.Fprintf(w, "\nAll columns but the last are per replica. Rates and holds are those of the busiest moment. N is the result of exact Erlang C if %s %%\nof the requests may wait, and at least 1.2 × the places that were in use at once.\n", Number(100*plan[0].in.WaitingShare))
}

// printYAML writes the settings to paste into a configuration. It makes no pool smaller.
func printYAML(w io.Writer, plan Plan) {
	fmt.Fprintf(w, "\nssps:\n")
	for i := range plan {
		p := &plan[i]
		_, n := p.sizeSetting()
		note := ""
		switch {
		case p.current > 0 && p.current >= n: // its size stays: the measured time may have been a quiet one
			note = fmt.Sprintf("   # enough: the plan needs %d", n)
		case p.current > 0:
			note = fmt.Sprintf("   # now %d, which is too few", p.current)
		}
		if p.autoLimit > 0 {
			note += fmt.Sprintf("; pool.auto uses %s of it", count(p.autoLimit, "place"))
		}
		fmt.Fprintf(w, "  - name: %s\n    pool:\n", p.name)
		for _, s := range p.settings() {
			fmt.Fprintf(w, "      %s: %d%s\n", s.key, s.value, note)
			note = ""
		}
		if p.protocol == string(dial.Auto) && !p.measured {
			fmt.Fprintf(w, "      max_http2_conns: %d   # should it negotiate HTTP/2, with max_streams_per_conn: %d\n", min(p.result.HTTP2GrownConns, n), p.in.Streams)
		}
	}
}
