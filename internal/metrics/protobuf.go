package metrics

import (
	"encoding/hex"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of metrics.proto in io.prometheus.client.
const (
	familyName, familyHelp, familyType, familyMetric = 1, 2, 3, 4

	metricLabel, metricGauge, metricCounter, metricHistogram = 1, 2, 3, 7
	pairName, pairValue                                      = 1, 2
	sampleValue                                              = 1

	histogramCount, histogramSum, histogramBucket, histogramSchema = 1, 2, 3, 5
	histogramThreshold, histogramZeros, histogramSpan              = 6, 7, 12
	histogramDelta                                                 = 13
	bucketCount, bucketBound, bucketExemplar                       = 1, 2, 3
	spanOffset, spanLength                                         = 1, 2
	exemplarLabel, exemplarValue, exemplarTime                     = 1, 2, 3
	timeSeconds, timeNanos                                         = 1, 2
)

var familyTypes = [...]uint64{counter: 0, gauge: 1, histograms: 4}

// message is scratch memory for the messages within a metric. A message's length precedes it, so
// the inner messages are encoded first.
type message struct {
	metric, histogram, bucket, exemplar, pair []byte
	native                                    nativeCounts
}

// appendMessage appends the metric's message, preceded by its length.
func (f *family) appendMessage(b []byte) []byte {
	head := appendText(nil, familyName, f.desc.name)
	head = appendText(head, familyHelp, f.desc.help)
	head = appendNumber(head, familyType, familyTypes[f.kind])
	b = protowire.AppendVarint(b, uint64(len(head)+len(f.text)))
	return append(append(b, head...), f.text...)
}

// appendSample appends a counter or a gauge.
func (m *message) appendSample(b []byte, d *Desc, k kind, v float64, first, more []string) []byte {
	m.begin(d, first, more)
	number := protowire.Number(metricGauge)
	if k == counter {
		number = metricCounter
	}
	m.pair = appendDouble(m.pair[:0], sampleValue, v)
	m.metric = appendBytes(m.metric, number, m.pair)
	return appendBytes(b, familyMetric, m.metric)
}

// begin encodes the metric's labels.
func (m *message) begin(d *Desc, first, more []string) {
	d.check(first, more)
	m.metric = m.metric[:0]
	for i := range d.labels {
		l := &d.labels[i]
		m.metric = m.appendPair(m.metric, metricLabel, l.name, l.of(first, more))
	}
}

func (m *message) appendPair(b []byte, n protowire.Number, name, value string) []byte {
	m.pair = appendText(appendText(m.pair[:0], pairName, name), pairValue, value)
	return appendBytes(b, n, m.pair)
}

// appendHistogram appends a histogram with both kinds of buckets.
func (m *message) appendHistogram(b []byte, d *Desc, h *Histogram, counts Counts, cumulative []uint64, first, more []string) []byte {
	m.begin(d, first, more)
	m.histogram = appendNumber(m.histogram[:0], histogramCount, cumulative[len(cumulative)-1])
	m.histogram = appendDouble(m.histogram, histogramSum, h.Sum())
	exemplars, bounds := h.Exemplars(), h.exported
	for i, n := range cumulative {
		bound := math.Inf(1)
		if i < len(bounds) {
			bound = bounds[i]
		}
		m.bucket = appendDouble(appendNumber(m.bucket[:0], bucketCount, n), bucketBound, bound)
		if exemplars != nil && exemplars[i] != nil {
			m.appendExemplar(h, exemplars[i])
		} else if i == len(bounds) {
			break // Prometheus adds this bucket
		}
		m.histogram = appendBytes(m.histogram, histogramBucket, m.bucket)
	}
	if h.fillNative(&m.native, counts) {
		m.appendNative()
	}
	m.metric = appendBytes(m.metric, metricHistogram, m.histogram)
	return appendBytes(b, familyMetric, m.metric)
}

func (m *message) appendExemplar(h *Histogram, e *Exemplar) {
	m.exemplar = m.appendPair(m.exemplar[:0], exemplarLabel, "trace_id", hex.EncodeToString(e.TraceID[:]))
	m.exemplar = appendDouble(m.exemplar, exemplarValue, h.exportedValue(e))
	m.pair = appendNumber(m.pair[:0], timeSeconds, uint64(e.At.Unix()))
	m.pair = appendNumber(m.pair, timeNanos, uint64(e.At.Nanosecond()))
	m.exemplar = appendBytes(m.exemplar, exemplarTime, m.pair)
	m.bucket = appendBytes(m.bucket, bucketExemplar, m.exemplar)
}

func (m *message) appendNative() {
	n, b := &m.native, m.histogram
	b = appendNumber(b, histogramSchema, protowire.EncodeZigZag(int64(n.Schema)))
	b = appendNumber(appendDouble(b, histogramThreshold, n.ZeroThreshold), histogramZeros, n.ZeroCount)
	for _, s := range n.Spans {
		m.pair = appendNumber(m.pair[:0], spanOffset, protowire.EncodeZigZag(int64(s.Offset)))
		m.pair = appendNumber(m.pair, spanLength, uint64(s.Length))
		b = appendBytes(b, histogramSpan, m.pair)
	}
	for _, d := range n.Deltas {
		b = appendNumber(b, histogramDelta, protowire.EncodeZigZag(d))
	}
	m.histogram = b
}

func appendText(b []byte, n protowire.Number, v string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), v)
}

func appendBytes(b []byte, n protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

func appendNumber(b []byte, n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
}

func appendDouble(b []byte, n protowire.Number, v float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, n, protowire.Fixed64Type), math.Float64bits(v))
}
