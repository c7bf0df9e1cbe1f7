package otlpmetrics

import (
	"context"
	"encoding/hex"
	"fmt"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"adbuffer/internal/metrics"
)

// counts counts exports, and warns when they begin to fail.
type counts struct {
	warn                     func(message string, err error)
	sent, failed, incomplete atomic.Uint64
	failing, lacking         atomic.Bool // the last export failed; it lacked series
}

func (c *counts) collect(to metrics.Sink) {
	for result, n := range map[string]*atomic.Uint64{"sent": &c.sent, "failed": &c.failed, "incomplete": &c.incomplete} {
		to.Counter(descExports, n.Load(), result)
	}
}

// producer gathers the series of an export, and converts them.
type producer struct {
	gather func() ([]*dto.MetricFamily, error)
	counts *counts
	bridge sdk.Producer
	family []*dto.MetricFamily // the metric that the bridge converts
}

func newProducer(gather func() ([]*dto.MetricFamily, error), c *counts) sdk.Producer {
	p := &producer{gather: gather, counts: c, family: make([]*dto.MetricFamily, 1)}
	p.bridge = bridge.NewMetricProducer(bridge.WithGatherer(p))
	return p
}

// Gather implements prometheus.Gatherer for the bridge.
func (p *producer) Gather() ([]*dto.MetricFamily, error) { return p.family, nil }

// Produce implements sdk.Producer. It converts one metric at a time, and lets requests run in between.
func (p *producer) Produce(ctx context.Context) ([]metricdata.ScopeMetrics, error) {
	families, err := p.gatherSafely()
	if before := p.counts.lacking.Swap(err != nil); err != nil && !before {
		p.counts.warn("exported metrics lack the series of a collector that failed", err)
	}
	var all []metricdata.ScopeMetrics
	for _, f := range families {
		for _, m := range f.Metric {
			withoutNativeBuckets(m.Histogram)
		}
		p.family[0] = f
		converted, err := p.bridge.Produce(ctx)
		if err != nil {
			return nil, err
		}
		switch {
		case len(converted) == 0:
		case all == nil:
			all = converted
		default:
			all[0].Metrics = append(all[0].Metrics, converted[0].Metrics...)
		}
		time.Sleep(time.Microsecond)
	}
	p.family[0] = nil
	return all, nil
}

// gatherSafely makes an error of a panic, as the handler of /metrics does: it must not end the process.
func (p *producer) gatherSafely() (families []*dto.MetricFamily, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	return p.gather()
}

// withoutNativeBuckets keeps the classic buckets of a histogram, which rules and dashboards use. With
// native ones, the bridge would convert only those, and lose exemplars.
func withoutNativeBuckets(h *dto.Histogram) {
	if h != nil {
		h.Schema, h.ZeroThreshold, h.ZeroCount, h.PositiveSpan, h.PositiveDelta, h.NegativeSpan, h.NegativeDelta = nil, nil, nil, nil, nil, nil, nil
	}
}

// countingExporter counts exports.
type countingExporter struct {
	sdk.Exporter
	counts *counts
}

// Export implements sdk.Exporter.
func (e *countingExporter) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	if len(m.ScopeMetrics) == 0 { // the collector's panic is logged
		e.counts.failed.Add(1)
		return nil
	}
	decodeTraceIDs(m)
	err := e.Exporter.Export(ctx, m)
	switch {
	case err != nil:
		e.counts.failed.Add(1)
	case e.counts.lacking.Load():
		e.counts.incomplete.Add(1)
	default:
		e.counts.sent.Add(1)
	}
	if before := e.counts.failing.Swap(err != nil); err != nil && !before {
		e.counts.warn("metrics could not be sent; see metrics.otlp.endpoint", err)
	}
	return nil // the SDK would print it to standard error
}

// decodeTraceIDs replaces the trace ids of exemplars, which the bridge leaves as hexadecimal text. A
// collector refuses a whole export with ids that are not 16 bytes long.
func decodeTraceIDs(m *metricdata.ResourceMetrics) {
	for _, scope := range m.ScopeMetrics {
		for _, metric := range scope.Metrics {
			histogram, ok := metric.Data.(metricdata.Histogram[float64])
			if !ok {
				continue
			}
			for _, point := range histogram.DataPoints {
				for i := range point.Exemplars {
					id, err := hex.DecodeString(string(point.Exemplars[i].TraceID))
					if err != nil {
						id = nil
					}
					point.Exemplars[i].TraceID = id
				}
			}
		}
	}
}
