package e2e

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"adbuffer/internal/test/testsupport"
)

// Scrape is one response of /metrics, by the names of the metrics. A histogram has the
// names name_bucket, name_sum and name_count.
type Scrape struct {
	t      testing.TB
	Series map[string]model.Vector
	Types  map[string]string // type of each metric family, in lower case
}

func (ab *Process) Scrape() *Scrape {
	ab.T.Helper()
	// Delimited protobuf takes a third of the CPU time that text takes, most of which the tests would need.
	_, body := ab.SendAdmin("GET", "/metrics", "", "Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim)))
	decoder := expfmt.NewDecoder(strings.NewReader(body), expfmt.NewFormat(expfmt.TypeProtoDelim))
	m := &Scrape{t: ab.T, Series: map[string]model.Vector{}, Types: map[string]string{}}
	var families []*dto.MetricFamily
	for {
		f := new(dto.MetricFamily)
		err := decoder.Decode(f)
		if err == io.EOF {
			break
		}
		testsupport.NoError(ab.T, err)
		m.Types[f.GetName()] = strings.ToLower(f.GetType().String())
		families = append(families, f)
	}
	samples, err := expfmt.ExtractSamples(new(expfmt.DecodeOptions), families...)
	testsupport.NoError(ab.T, err)
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
