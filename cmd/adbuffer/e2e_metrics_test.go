package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// series is one line of the exposition format.
type series struct {
	labels string // {a="b",c="d"} as written, empty without labels
	value  float64
}

// has reports whether the series has all of these labels, written name=value.
func (s series) has(labels []string) bool {
	for _, l := range labels {
		name, value, _ := strings.Cut(l, "=")
		pair := fmt.Sprintf("%s=%q", name, value)
		if !strings.Contains(s.labels, "{"+pair) && !strings.Contains(s.labels, ","+pair) {
			return false
		}
	}
	return true
}

// scrape is one answer of /metrics, by the names of the metrics. Histograms are
// there as name_bucket, name_sum and name_count.
type scrape struct {
	t      testing.TB
	series map[string][]series
	types  map[string]string // as # TYPE says
}

func (ab *adbuffer) scrape() *scrape {
	ab.t.Helper()
	_, text := ab.ask("/metrics")
	return parseMetrics(ab.t, text)
}

func parseMetrics(t testing.TB, text string) *scrape {
	t.Helper()
	m := &scrape{t: t, series: map[string][]series{}, types: map[string]string{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if typed, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, typ, _ := strings.Cut(typed, " ")
			m.types[name] = typ
		}
		if line == "" || line[0] == '#' {
			continue
		}
		space := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(line[space+1:], 64)
		if err != nil {
			t.Fatalf("/metrics: %q: %v", line, err)
		}
		name, labels := line[:space], ""
		if i := strings.IndexByte(name, '{'); i >= 0 {
			name, labels = name[:i], name[i:]
		}
		m.series[name] = append(m.series[name], series{labels, value})
	}
	return m
}

// all returns the series of a metric that have these labels.
func (m *scrape) all(name string, labels ...string) (found []series) {
	for _, s := range m.series[name] {
		if s.has(labels) {
			found = append(found, s)
		}
	}
	return found
}

// value returns the one series of a metric that has these labels.
func (m *scrape) value(name string, labels ...string) float64 {
	m.t.Helper()
	found := m.all(name, labels...)
	if len(found) != 1 {
		m.t.Fatalf("%d series %s%v, want 1: %v", len(found), name, labels, m.series[name])
	}
	return found[0].value
}

// sum adds up all series of a metric that have these labels.
func (m *scrape) sum(name string, labels ...string) (total float64) {
	m.t.Helper()
	if len(m.series[name]) == 0 {
		m.t.Fatalf("there is no %s", name)
	}
	for _, s := range m.all(name, labels...) {
		total += s.value
	}
	return total
}

// metric scrapes, and returns one series.
func (ab *adbuffer) metric(name string, labels ...string) float64 {
	ab.t.Helper()
	return ab.scrape().value(name, labels...)
}

// wantMetric checks one series.
func (ab *adbuffer) wantMetric(want float64, name string, labels ...string) {
	ab.t.Helper()
	if got := ab.metric(name, labels...); got != want {
		ab.t.Errorf("%s%v is %v, want %v", name, labels, got, want)
	}
}

// awaitMetric waits until one series has this value.
func (ab *adbuffer) awaitMetric(want float64, name string, labels ...string) {
	ab.t.Helper()
	eventually(ab.t, fmt.Sprintf("%s%v is %v", name, labels, want), func() bool { return ab.metric(name, labels...) == want })
}

// awaitMetricAbove waits until one series is above a value.
func (ab *adbuffer) awaitMetricAbove(low float64, name string, labels ...string) {
	ab.t.Helper()
	eventually(ab.t, fmt.Sprintf("%s%v is above %v", name, labels, low), func() bool { return ab.metric(name, labels...) > low })
}
