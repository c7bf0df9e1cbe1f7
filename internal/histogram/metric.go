package histogram

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

// metric is a histogram at the moment of a scrape. client_golang writes it in each format: in
// protobuf as a native histogram too.
type metric struct {
	desc      *prometheus.Desc
	labels    []*dto.LabelPair
	layout    *layout
	counts    Counts
	sum       float64
	exemplars []*Exemplar // by bucket; nil for none
}

// Metric returns the histogram as it is now, under desc with the given label
// values.
func (h *Histogram) Metric(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	return &metric{
		desc: desc, labels: prometheus.MakeLabelPairs(desc, labels), layout: h.layout,
		counts: h.Counts(), sum: h.Sum(), exemplars: h.Exemplars(),
	}
}

// Desc implements prometheus.Metric.
func (m *metric) Desc() *prometheus.Desc { return m.desc }

// Write implements prometheus.Metric.
func (m *metric) Write(out *dto.Metric) error {
	cumulative := m.layout.AppendCumulative(make([]uint64, 0, len(m.layout.bounds)+1), m.counts)
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
			b.UpperBound = proto.Float64(math.Inf(1))
		}
		h.Bucket = append(h.Bucket, b)
	}
	if n := m.layout.native; n != nil {
		n.write(h, m.counts)
	}
	out.Label, out.Histogram = m.labels, h
	return nil
}

// write adds the native histogram of counts to out.
func (n *native) write(out *dto.Histogram, counts Counts) {
	out.Schema, out.ZeroThreshold = proto.Int32(nativeSchema), proto.Float64(n.threshold())
	at := 0
	upTo := func(last int) (sum uint64) { // counts of the fine buckets up to last
		for ; at <= last; at++ {
			sum += counts[at]
		}
		return sum
	}
	out.ZeroCount = proto.Uint64(upTo(n.whole[0]))
	before, next := int64(0), 0 // the count of the last bucket, and the number behind it
	for i := 1; i < len(n.whole); i++ {
		last := n.whole[i]
		if i == len(n.whole)-1 {
			last = len(counts) - 1
		}
		count := int64(upTo(last))
		if count == 0 {
			continue
		}
		number := n.first + i
		if len(out.PositiveSpan) == 0 || number != next {
			out.PositiveSpan = append(out.PositiveSpan, &dto.BucketSpan{Offset: proto.Int32(int32(number - next)), Length: proto.Uint32(0)})
		}
		*out.PositiveSpan[len(out.PositiveSpan)-1].Length++
		out.PositiveDelta = append(out.PositiveDelta, count-before)
		before, next = count, number+1
	}
}
