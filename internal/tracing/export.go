package tracing

import (
	"context"
	"sync/atomic"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"adbuffer/internal/metrics"
)

// counting is an exporter that counts exported and failed spans. If there are too many spans, the
// SDK drops some without a count.
type counting struct {
	to         sdk.SpanExporter
	made, sent atomic.Uint64
	failed     atomic.Uint64
}

// ExportSpans implements sdk.SpanExporter.
func (c *counting) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := c.to.ExportSpans(ctx, spans)
	if err != nil {
		c.failed.Add(uint64(len(spans)))
	} else {
		c.sent.Add(uint64(len(spans)))
	}
	return nil // counted; the SDK would print it to standard error
}

// Shutdown implements sdk.SpanExporter.
func (c *counting) Shutdown(ctx context.Context) error { return c.to.Shutdown(ctx) }

var descSpans = Descs.New("adbuffer_trace_spans_total", "Spans, by state: made, sent to tracing.endpoint, or failed to be sent. The other made spans wait for their batch, or were dropped because too many waited.", "state")

func (c *counting) collect(to metrics.Sink) {
	for state, n := range map[string]*atomic.Uint64{"made": &c.made, "sent": &c.sent, "failed": &c.failed} {
		to.Counter(descSpans, n.Load(), state)
	}
}
