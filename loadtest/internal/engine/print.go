package engine

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
)

// Print writes the outcome as text.
func (o *Outcome) Print(w io.Writer) {
	r := o.Load
	t := results.Table{Title: o.Scenario, Columns: []string{"phase", "seconds", "offered", "answered", "failed", "answers/s", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms"}}
	var row func(name string, s load.Summary)
	row = func(name string, s load.Summary) {
		t.Add(r.Doubts, name, s.Seconds, s.Offered, s.Answered, s.Failed, s.Rate, s.Latency.P50, s.Latency.P90, s.Latency.P99, s.Latency.P999, s.Latency.Max)
		for _, class := range s.Classes {
			row("  "+class.Name, class)
		}
	}
	whole := r.Whole.Name
	if len(r.Phases) > 1 {
		whole = "all recorded"
		for _, p := range r.Phases {
			row(p.Name, p)
		}
	}
	row(whole, r.Whole)
	fmt.Fprint(w, t.Markdown())
	for _, kind := range slices.Sorted(maps.Keys(r.Whole.Errors)) {
		fmt.Fprintf(w, "error: %s: %d\n", kind, r.Whole.Errors[kind])
	}
	c := r.Connections
	fmt.Fprintf(w, "client side: %d TCP handshakes, %d TLS handshakes (%d resumed), %d requests on reused connections, %d connections closed by the server between requests\n",
		c.TCP, c.TLS, c.Resumed, c.Reused, c.ClosedIdle)
	for _, name := range slices.Sorted(maps.Keys(o.SSPs)) {
		s := o.SSPs[name]
		fmt.Fprintf(w, "SSP %s: %d TCP handshakes, %d TLS handshakes (%d resumed), %d requests, at most %d at once\n", name, s.Connections, s.Handshakes, s.Resumed, s.Requests, s.MaxInFlight)
	}
	if p := o.Proxy; p != nil {
		fmt.Fprintf(w, "process %d under test: %.1f µs CPU a request, %.2f s in all, %s in memory (at most %s), %d open files\n",
			p.PID, p.CPUPerRequest, p.CPUSeconds, results.MiB(p.RSS), results.MiB(p.PeakRSS), p.Files)
	}
	fmt.Fprintf(w, "generator: %.2f s CPU, its busiest thread ran %.0f %% of the time, its cores were busy %.0f %%, 99 %% of due requests seen within %.2f ms\n",
		r.Generator.CPUSeconds, r.Generator.Busiest*100, r.Generator.Core*100, r.Generator.LagP99)
	for _, d := range r.Doubts {
		fmt.Fprintf(w, "NOT TO BE TRUSTED: %s\n", d)
	}
}
