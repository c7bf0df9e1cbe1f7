package metrics

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// metric is a prometheus.Metric: a histogram at the moment of a scrape. client_golang writes it in
// each format: in protobuf also as a native histogram.
type metric struct {
	desc      *prometheus.Desc
	labels    []*dto.LabelPair
	layout    *layout
	counts    Counts
	sum       float64
	exemplars []*Exemplar // by bucket; nil for none
}

// Metric returns the current histogram, under desc with the given label values.
func (h *Histogram) Metric(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	return &metric{
		desc: desc, labels: prometheus.MakeLabelPairs(desc, labels), layout: h.layout,
		counts: h.Counts(), sum: h.Sum(), exemplars: h.Exemplars(),
	}
}

func (m *metric) Desc() *prometheus.Desc { return m.desc }

func (m *metric) Write(out *dto.Metric) error {
	cumulative := m.layout.appendCumulative(make([]uint64, 0, len(m.layout.bounds)+1), m.counts)
	h := &dto.Histogram{SampleCount: &cumulative[len(cumulative)-1], SampleSum: &m.sum}
	buckets := make([]dto.Bucket, len(cumulative))
	for i := range buckets {
		b := &buckets[i]
		b.CumulativeCount = &cumulative[i]
		if m.exemplars != nil && m.exemplars[i] != nil {
			b.Exemplar = m.exemplars[i].proto(m.layout)
		}
		switch {
		case i < len(m.layout.exported):
			b.UpperBound = &m.layout.exported[i] // read only
		case b.Exemplar == nil:
			continue // client_golang adds this bucket
		default:
			b.UpperBound = new(math.Inf(1))
		}
		h.Bucket = append(h.Bucket, b)
	}
	var n nativeCounts
	if m.layout.fillNative(&n, m.counts) {
		h.Schema, h.ZeroThreshold, h.ZeroCount, h.PositiveDelta = &n.Schema, &n.ZeroThreshold, &n.ZeroCount, n.Deltas
		for i := range n.Spans {
			h.PositiveSpan = append(h.PositiveSpan, &dto.BucketSpan{Offset: &n.Spans[i].Offset, Length: &n.Spans[i].Length})
		}
	}
	out.Label, out.Histogram = m.labels, h
	return nil
}
