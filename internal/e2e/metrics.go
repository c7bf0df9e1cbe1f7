package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"adbuffer/internal/testsupport"
)

// series is one line of the exposition format.
type series struct {
	Labels string // {a="b",c="d"} as written, empty without labels
	Value  float64
}

// Has reports whether the series has all of these labels, each written as name=value.
func (s series) Has(labels []string) bool {
	for _, l := range labels {
		name, value, _ := strings.Cut(l, "=")
		pair := fmt.Sprintf("%s=%q", name, value)
		if !strings.Contains(s.Labels, "{"+pair) && !strings.Contains(s.Labels, ","+pair) {
			return false
		}
	}
	return true
}

// Scrape is one response of /metrics, by the names of the metrics. A histogram has the
// names name_bucket, name_sum and name_count.
type Scrape struct {
	t      testing.TB
	Series map[string][]series
	Types  map[string]string // from the lines # TYPE
}

func (ab *Process) Scrape() *Scrape {
	ab.T.Helper()
	_, text := ab.AskAdmin("/metrics")
	m := &Scrape{t: ab.T, Series: map[string][]series{}, Types: map[string]string{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if typed, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, typ, _ := strings.Cut(typed, " ")
			m.Types[name] = typ
		}
		if line == "" || line[0] == '#' {
			continue
		}
		space := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(line[space+1:], 64)
		if err != nil {
			ab.T.Fatalf("/metrics: %q: %v", line, err)
		}
		name, labels := line[:space], ""
		if i := strings.IndexByte(name, '{'); i >= 0 {
			name, labels = name[:i], name[i:]
		}
		m.Series[name] = append(m.Series[name], series{labels, value})
	}
	return m
}

// All returns the series of a metric that have these labels.
func (m *Scrape) All(name string, labels ...string) (found []series) {
	for _, s := range m.Series[name] {
		if s.Has(labels) {
			found = append(found, s)
		}
	}
	return found
}

// Value returns the one series of a metric that has these labels.
func (m *Scrape) Value(name string, labels ...string) float64 {
	m.t.Helper()
	found := m.All(name, labels...)
	if len(found) != 1 {
		m.t.Fatalf("%d series %s%v, want 1: %v", len(found), name, labels, m.Series[name])
	}
	return found[0].Value
}

// Sum adds up all series of a metric that have these labels.
func (m *Scrape) Sum(name string, labels ...string) (total float64) {
	m.t.Helper()
	if len(m.Series[name]) == 0 {
		m.t.Fatalf("there is no %s", name)
	}
	for _, s := range m.All(name, labels...) {
		total += s.Value
	}
	return total
}

// Metric scrapes /metrics and returns one series.
func (ab *Process) Metric(name string, labels ...string) float64 {
	ab.T.Helper()
	return ab.Scrape().Value(name, labels...)
}

// WantMetric checks one series.
func (ab *Process) WantMetric(want float64, name string, labels ...string) {
	ab.T.Helper()
	if got := ab.Metric(name, labels...); got != want {
		ab.T.Errorf("%s%v is %v, want %v", name, labels, got, want)
	}
}

// AwaitMetric waits until one series has this value.
func (ab *Process) AwaitMetric(want float64, name string, labels ...string) {
	ab.T.Helper()
	testsupport.Eventually(ab.T, fmt.Sprintf("%s%v is %v", name, labels, want), func() bool { return ab.Metric(name, labels...) == want })
}

// AwaitMetricAbove waits until one series is above a value.
func (ab *Process) AwaitMetricAbove(low float64, name string, labels ...string) {
	ab.T.Helper()
	testsupport.Eventually(ab.T, fmt.Sprintf("%s%v is above %v", name, labels, low), func() bool { return ab.Metric(name, labels...) > low })
}
