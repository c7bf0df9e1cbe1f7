package metrics

import (
	"math"

	dto "github.com/prometheus/client_model/go"
)

// message returns the histogram as a message of client_golang's data model, with both kinds of
// buckets.
func (h *Histogram) message() *dto.Histogram {
	counts, exemplars := h.Counts(), h.Exemplars()
	cumulative := h.cumulative(counts)
	m := &dto.Histogram{SampleCount: &cumulative[len(cumulative)-1], SampleSum: new(h.Sum())}
	buckets := make([]dto.Bucket, len(cumulative))
	m.Bucket = make([]*dto.Bucket, 0, len(cumulative))
	for i := range buckets {
		b := &buckets[i]
		b.CumulativeCount = &cumulative[i]
		if exemplars != nil && exemplars[i] != nil {
			b.Exemplar = exemplars[i].message(h.layout)
		}
		switch {
		case i < len(h.exported):
			b.UpperBound = &h.exported[i] // read only
		case b.Exemplar == nil:
			continue // every reader of the message adds this bucket
		default:
			b.UpperBound = new(math.Inf(1))
		}
		m.Bucket = append(m.Bucket, b)
	}
	if h.native != nil {
		h.native.fill(m, counts)
	}
	return m
}
