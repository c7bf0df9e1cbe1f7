package tracing

import (
	"context"
	"encoding/binary"
	"math/rand/v2"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"adbuffer/internal/upstream"
)

// Begin returns the span of an exchange that begins, zero if the exchange is not sampled. It continues the client's trace,
// where traceParent is one, and takes over its decision about sampling; otherwise it begins a trace.
func (t *Tracer) Begin(traceParent []byte) (b upstream.Trace) {
	if parent, ok := parseTraceParent(traceParent); ok {
		if !parent.IsSampled() {
			return b
		}
		b.TraceID, b.Continued = parent.TraceID(), true
	} else {
		random(b.TraceID[:])
		if t.sampler.ShouldSample(sdk.SamplingParameters{ParentContext: context.Background(), TraceID: b.TraceID}).Decision != sdk.RecordAndSample {
			return upstream.Trace{}
		}
	}
	random(b.SpanID[:])
	return b
}

// random fills b, whose length is a multiple of 8, with bytes that are not all zero.
func random(b []byte) {
	for i := 0; i < len(b); i += 8 {
		binary.BigEndian.PutUint64(b[i:], rand.Uint64()|1)
	}
}

// begun is the key of the upstream.Trace that the next span of a context has.
type begun struct{}

// ids gives spans the ids that Begin has sent, and the spans below them random ones.
type ids struct{}

// NewIDs implements sdk.IDGenerator: it is called for a span without parent.
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if b, ok := ctx.Value(begun{}).(*upstream.Trace); ok {
		return b.TraceID, b.SpanID
	}
	var id [16]byte
	var span [8]byte
	random(id[:])
	random(span[:])
	return id, span
}

// NewSpanID implements sdk.IDGenerator: it is called for a span with a parent.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if b, ok := ctx.Value(begun{}).(*upstream.Trace); ok {
		return b.SpanID
	}
	var span [8]byte
	random(span[:])
	return span
}
