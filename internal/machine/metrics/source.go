// Package metrics has what adbuffer's metrics need beside client_golang: collectors that write the series of one part
// of adbuffer at each scrape, and histograms and counters that are cheap enough for every request.
package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Descs are the descriptions of a source's metrics.
type Descs []*prometheus.Desc

// New adds the description of a metric with these labels, and returns it. Descriptions are made once,
// for package variables.
func (all *Descs) New(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, nil)
	*all = append(*all, d)
	return d
}

// NewPart is New for a metric to which several collectors contribute. Each writes the series that have
// its value of a label. The name, the help and the names of all labels are the same in all collectors.
func (all *Descs) NewPart(name, help, label, value string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, prometheus.Labels{label: value})
	*all = append(*all, d)
	return d
}

// Dropped adds the description of the clients that were dropped for this reason.
func (all *Descs) Dropped(reason string) *prometheus.Desc {
	return all.NewPart("adbuffer_clients_dropped_total", "Clients that were dropped to make room for others, by what they did: an idle connection (idle), "+
		"the rest of a PROXY header or TLS handshake (handshake) or of a message head (head) that did not arrive, where server.max_connections or the open files were exhausted; "+
		"a body that was still arriving at server.max_uploads, or beyond half of server.max_buffered_bytes (body); "+
		"a response that was not read, beyond half of that limit or of an SSP's max_buffered_bytes (response); a connection to the admin listener (admin).", "reason", reason)
}

// LimitRefused adds the description of what this limit of the service refused.
func (all *Descs) LimitRefused(limit string) *prometheus.Desc {
	return all.NewPart("adbuffer_limit_refused_total", "What a limit of the service refused, by the limit's setting below server: connections, requests and legs, "+
		"and for background_cpu TLS handshakes, texts of /metrics and bodies whose turn did not come in time. What one SSP's limit refused is not counted here.", "limit", limit)
}

// ClientErrors adds the description of the errors of clients in this protocol.
func (all *Descs) ClientErrors(protocol string) *prometheus.Desc {
	return all.NewPart("adbuffer_client_protocol_errors_total", "Connections of clients that failed before their first request, because of the PROXY header that a trusted peer must send (proxy) "+
		"or the TLS handshake (tls), and streams and connections that were reset or closed because the client violated HTTP/2 (http2), by reason.", "protocol", protocol, "reason")
}

// source is a prometheus.Collector whose series are written to a Sink.
type source struct {
	descs  Descs
	series func(Sink)
}

// NewSource returns a collector. At each scrape it calls series, which writes the series. descs must describe all of
// them.
func NewSource(descs Descs, series func(Sink)) prometheus.Collector { return &source{descs, series} }

// Describe implements prometheus.Collector.
func (s *source) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range s.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *source) Collect(ch chan<- prometheus.Metric) { s.series(Sink{ch: ch}) }

// Sink receives the series of one scrape. Its methods panic if the number of labels is wrong.
type Sink struct {
	ch           chan<- prometheus.Metric
	commonValues []string // values of the first labels
}

// With returns a sink like s that adds these label values to each series, after the label values that s adds.
func (s Sink) With(values ...string) Sink {
	s.commonValues = slices.Concat(s.commonValues, values)
	return s
}

func (s Sink) value(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels []string) {
	s.ch <- prometheus.MustNewConstMetric(d, kind, v, slices.Concat(s.commonValues, labels)...)
}

// Counter writes a counter with the values of its other labels.
func (s Sink) Counter(d *prometheus.Desc, v uint64, labels ...string) {
	s.FloatCounter(d, float64(v), labels...)
}

// FloatCounter is Counter for a value that is not a whole number, such as seconds.
func (s Sink) FloatCounter(d *prometheus.Desc, v float64, labels ...string) {
	s.value(d, prometheus.CounterValue, v, labels)
}

// CounterIf is Counter for an event that can happen only if possible is set. Without possible, a count of 0 makes no
// series. A count of events from an earlier configuration is still written.
func (s Sink) CounterIf(possible bool, d *prometheus.Desc, v uint64, labels ...string) {
	if possible || v > 0 {
		s.Counter(d, v, labels...)
	}
}

// Gauge writes a gauge with the values of its other labels.
func (s Sink) Gauge(d *prometheus.Desc, v float64, labels ...string) {
	s.value(d, prometheus.GaugeValue, v, labels)
}

// Bool writes a gauge: 1 if v is true, else 0.
func (s Sink) Bool(d *prometheus.Desc, v bool, labels ...string) {
	n := 0.0
	if v {
		n = 1
	}
	s.Gauge(d, n, labels...)
}

// Writer is a histogram: a *Histogram, or a prometheus.Histogram, whose description and labels are ignored.
type Writer interface{ Write(*dto.Metric) error }

// Histogram writes a histogram with the values of its other labels.
func (s Sink) Histogram(d *prometheus.Desc, h Writer, labels ...string) {
	s.HistogramIf(true, d, h, labels...)
}

// HistogramIf is Histogram under the conditions of CounterIf.
func (s Sink) HistogramIf(possible bool, d *prometheus.Desc, h Writer, labels ...string) {
	m := finishedMetric{desc: d}
	if err := h.Write(&m.metric); err != nil {
		panic("BUG: " + err.Error()) // no histogram returns an error
	}
	if possible || m.metric.Histogram.GetSampleCount() > 0 {
		m.metric.Label = prometheus.MakeLabelPairs(d, slices.Concat(s.commonValues, labels))
		s.ch <- &m
	}
}

// finishedMetric is a series whose message is complete.
type finishedMetric struct {
	desc   *prometheus.Desc
	metric dto.Metric
}

// Desc implements prometheus.Metric.
func (w *finishedMetric) Desc() *prometheus.Desc { return w.desc }

// Write implements prometheus.Metric.
func (w *finishedMetric) Write(out *dto.Metric) error {
	out.Label, out.Histogram = w.metric.Label, w.metric.Histogram
	return nil
}
