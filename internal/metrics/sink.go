package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// source is a prometheus.Collector whose series a Sink takes.
type source struct {
	descs  Descs
	series func(Sink)
}

// NewSource returns a collector whose series are written by series; descs describe all of them.
func NewSource(descs Descs, series func(Sink)) prometheus.Collector { return &source{descs, series} }

func (s *source) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range s.descs {
		ch <- d.Desc
	}
}

func (s *source) Collect(ch chan<- prometheus.Metric) {
	s.series(Sink{put: func(d *Desc, _ dto.MetricType, m *dto.Metric) { ch <- collected{d.Desc, m} }})
}

// collected is a series for client_golang.
type collected struct {
	desc *prometheus.Desc
	m    *dto.Metric
}

func (c collected) Desc() *prometheus.Desc { return c.desc }

func (c collected) Write(out *dto.Metric) error {
	out.Label, out.Counter, out.Gauge, out.Histogram = c.m.Label, c.m.Counter, c.m.Gauge, c.m.Histogram
	return nil
}

// Sink receives the series of one scrape.
type Sink struct {
	put   func(*Desc, dto.MetricType, *dto.Metric)
	first []string // values of the first labels
}

// With returns a sink that adds these label values to each of its series, after the values that s
// adds.
func (s Sink) With(values ...string) Sink {
	s.first = slices.Concat(s.first, values)
	return s
}

// Counter writes a counter with the values of its other labels.
func (s Sink) Counter(d *Desc, v uint64, labels ...string) {
	s.FloatCounter(d, float64(v), labels...)
}

// FloatCounter is Counter for a count of seconds.
func (s Sink) FloatCounter(d *Desc, v float64, labels ...string) {
	c := new(struct {
		series
		counter dto.Counter
		value   float64
	})
	c.value = v
	c.counter.Value, c.metric.Counter = &c.value, &c.counter
	s.put(d, dto.MetricType_COUNTER, c.label(d, s.first, labels))
}

// CounterIf is Counter for an event that happens only if possible. A count of 0 that cannot change is no
// series. A count that an earlier configuration has left stays.
func (s Sink) CounterIf(possible bool, d *Desc, v uint64, labels ...string) {
	if possible || v > 0 {
		s.Counter(d, v, labels...)
	}
}

// Gauge writes a gauge with the values of its other labels.
func (s Sink) Gauge(d *Desc, v float64, labels ...string) {
	g := new(struct {
		series
		gauge dto.Gauge
		value float64
	})
	g.value = v
	g.gauge.Value, g.metric.Gauge = &g.value, &g.gauge
	s.put(d, dto.MetricType_GAUGE, g.label(d, s.first, labels))
}

// Bool writes a gauge: 1 if v is true, else 0.
func (s Sink) Bool(d *Desc, v bool, labels ...string) {
	n := 0.0
	if v {
		n = 1
	}
	s.Gauge(d, n, labels...)
}

// Histogram writes a histogram with the values of its other labels.
func (s Sink) Histogram(d *Desc, h *Histogram, labels ...string) {
	m := new(series)
	m.metric.Histogram = h.message()
	s.put(d, dto.MetricType_HISTOGRAM, m.label(d, s.first, labels))
}

// HistogramIf is Histogram under the conditions of CounterIf.
func (s Sink) HistogramIf(possible bool, d *Desc, h *Histogram, labels ...string) {
	if possible || h.Count() > 0 {
		s.Histogram(d, h, labels...)
	}
}

// series is a message with room for its labels: one allocation instead of nine.
type series struct {
	metric dto.Metric
	pairs  [mostLabels]dto.LabelPair
	labels [mostLabels]*dto.LabelPair
	values [mostLabels]string
}

// mostLabels is the highest number of labels that a metric has.
const mostLabels = 4

// label sets the labels, sorted by name. It panics unless there is a value for each label.
func (s *series) label(d *Desc, first, more []string) *dto.Metric {
	if len(first)+len(more) != len(d.labels) {
		panic("BUG: " + d.name + " was given the wrong number of labels")
	}
	copy(s.values[copy(s.values[:], first):], more)
	for i, at := range d.sorted {
		s.pairs[i].Name, s.pairs[i].Value = &d.labels[at], &s.values[at]
		s.labels[i] = &s.pairs[i]
	}
	s.metric.Label = s.labels[:len(d.sorted)]
	return &s.metric
}
