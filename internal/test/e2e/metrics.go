package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"adbuffer/internal/test/testsupport"
)

// Scrape is one response of /metrics, by the names of the metrics. A histogram has the
// names name_bucket, name_sum and name_count.
type Scrape struct {
	t      testing.TB
	Series map[string]model.Vector
	Types  map[string]string // from the lines # TYPE
}

func (ab *Process) Scrape() *Scrape {
	ab.T.Helper()
	_, text := ab.AskAdmin("/metrics")
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	testsupport.NoError(ab.T, err)
	samples, err := expfmt.ExtractSamples(new(expfmt.DecodeOptions), slices.Collect(maps.Values(families))...)
	testsupport.NoError(ab.T, err)
	m := &Scrape{t: ab.T, Series: map[string]model.Vector{}, Types: map[string]string{}}
	for name, f := range families {
		m.Types[name] = strings.ToLower(f.GetType().String())
	}
	for _, s := range samples {
		name := string(s.Metric[model.MetricNameLabel])
		m.Series[name] = append(m.Series[name], s)
	}
	return m
}

// All returns the series of a metric that have these labels, each written as name=value.
func (m *Scrape) All(name string, labels ...string) (found model.Vector) {
	for _, s := range m.Series[name] {
		if !slices.ContainsFunc(labels, func(label string) bool {
			name, value, _ := strings.Cut(label, "=")
			return string(s.Metric[model.LabelName(name)]) != value
		}) {
			found = append(found, s)
		}
	}
	return found
}

// Value returns the one series of a metric that has these labels.
func (m *Scrape) Value(name string, labels ...string) float64 {
	m.t.Helper()
	found := m.All(name, labels...)
	testsupport.MustTrue(m.t, len(found) == 1, "%d series %s%v, want 1: %v", len(found), name, labels, m.Series[name])
	return float64(found[0].Value)
}

// Sum adds up all series of a metric that have these labels.
func (m *Scrape) Sum(name string, labels ...string) (total float64) {
	m.t.Helper()
	testsupport.MustTrue(m.t, len(m.Series[name]) > 0, "there is no %s", name)
	for _, s := range m.All(name, labels...) {
		total += float64(s.Value)
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
	testsupport.Equal(ab.T, ab.Metric(name, labels...), want, "%[2]s%[3]v is %[1]v", name, labels)
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
