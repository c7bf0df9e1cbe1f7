package tracing

import (
	"context"
	"sync/atomic"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// countingExporter counts spans that were made, sent, and failed to be sent. Spans that the SDK drops, because too
// many wait, show only as made.
type countingExporter struct {
	to         sdk.SpanExporter
	warn       func(error) // Options.Warn; nil = no warnings
	made, sent atomic.Uint64
	failed     atomic.Uint64
	failing    atomic.Bool // the last batch failed
}

// ExportSpans implements sdk.SpanExporter.
func (c *countingExporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := c.to.ExportSpans(ctx, spans)
	if err == nil {
		c.sent.Add(uint64(len(spans)))
	} else {
		c.failed.Add(uint64(len(spans)))
	}
	if before := c.failing.Swap(err != nil); err != nil && !before && c.warn != nil {
		c.warn(err)
	}
	return nil // the SDK would print the error to standard error
}

// Shutdown implements sdk.SpanExporter.
func (c *countingExporter) Shutdown(ctx context.Context) error { return c.to.Shutdown(ctx) }

var descSpans = Descs.New("adbuffer_trace_spans_total", "Spans, by state: made, sent to tracing.endpoint, or failed to be sent. The other made spans wait for their batch, or were dropped because too many waited. State over_limit counts requests that tracing.sample or a trusted peer chose, and that have no spans because 200 requests were traced in that second.", "state")
