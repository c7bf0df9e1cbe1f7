package scenario

import (
	_ "embed"
	"fmt"
	"io"
	"text/template"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
)

//go:embed outcome.txt
var outcomeText string

var outcomeTemplate = template.Must(template.New("outcome").Funcs(template.FuncMap{"mib": results.MiB,
	"percent": func(share float64) string { return fmt.Sprintf("%.0f %%", share*100) }}).Parse(outcomeText))

// Print writes the outcome as text.
func (o *Outcome) Print(w io.Writer) error { return outcomeTemplate.Execute(w, o) }

// Table returns the figures of all phases and classes as Markdown.
func (o *Outcome) Table() string {
	r := o.Load
	t := results.Table{Title: o.Scenario, Columns: []string{"phase", "seconds", "offered", "answered", "failed",
		"answers/s", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms"}}
	var row func(name string, s load.Summary)
	row = func(name string, s load.Summary) {
		t.Add(r.Doubts, name, s.Seconds, s.Offered, s.Answered, s.Failed, s.Rate, s.Latency.P50, s.Latency.P90,
			s.Latency.P99, s.Latency.P999, s.Latency.Max)
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
	return t.Markdown()
}
