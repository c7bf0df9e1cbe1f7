package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
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

func (s *source) Collect(ch chan<- prometheus.Metric) { s.series(Sink{ch: ch}) }

// Sink receives the series of one scrape. Exactly one of its destinations is set.
type Sink struct {
	ch    chan<- prometheus.Metric
	page  *page
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
	if s.page == nil {
		s.ch <- prometheus.MustNewConstMetric(d.Desc, prometheus.CounterValue, float64(v), s.values(labels)...)
		return
	}
	s.page.sample(d, counter, float64(v), s.first, labels)
}

// Gauge writes a gauge with the values of its other labels.
func (s Sink) Gauge(d *Desc, v float64, labels ...string) {
	if s.page == nil {
		s.ch <- prometheus.MustNewConstMetric(d.Desc, prometheus.GaugeValue, v, s.values(labels)...)
		return
	}
	s.page.sample(d, gauge, v, s.first, labels)
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
	if s.page == nil {
		s.ch <- h.Metric(d.Desc, s.values(labels)...)
		return
	}
	s.page.histogram(d, h, s.first, labels)
}

// values returns a copy, so that the callers' labels need no heap memory.
func (s Sink) values(labels []string) []string { return slices.Concat(s.first, labels) }
