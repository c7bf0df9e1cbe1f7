package pool

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// reported returns what p reports in /metrics as adbuffer_name, over all series that have these values of labels:
// the sum of counters and gauges, or of a histogram the number of observations and their sum.
func reported(p *Pool, name string, labels ...string) (n int, sum float64) {
	r := prometheus.NewRegistry()
	r.MustRegister(NewCollector(func() []*Pool { return []*Pool{p} }))
	families, err := r.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range families {
		if f.GetName() != "adbuffer_"+name {
			continue
		}
		for _, m := range f.Metric {
			var values []string
			for _, l := range m.Label {
				values = append(values, l.GetValue())
			}
			if slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(values, l) }) {
				continue
			}
			n += int(m.GetCounter().GetValue()+m.GetGauge().GetValue()) + int(m.GetHistogram().GetSampleCount())
			sum += m.GetHistogram().GetSampleSum()
		}
	}
	return n, sum
}

// counted is the first result of reported.
func counted(p *Pool, name string, labels ...string) int {
	n, _ := reported(p, name, labels...)
	return n
}

// failedDials returns how many dials and look-ups failed with this kind of error.
func failedDials(p *Pool, kind string) int { return counted(p, "pool_dial_errors_total", kind) }
