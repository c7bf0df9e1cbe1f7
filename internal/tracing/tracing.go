// Package tracing sends spans over OTLP that show where an exchange's time went.
//
// Spans are made from the Times of an exchange after it has ended. A request does no work for them
// while it runs, and none at all while tracing is off.
package tracing

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"adbuffer/internal/upstream"
)

// Options are the settings `tracing`.
type Options struct {
	// Endpoint is the URL of an OTLP receiver over HTTP. Without a path, it means /v1/traces.
	Endpoint string
	// Sample is the share of requests, 0 to 1, that are traced if no traceparent decides.
	Sample float64
	// Version is the process's own.
	Version string
}

// Tracer makes spans of exchanges and sends them, in batches and in the background. It is safe for
// concurrent use. End it with Close.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	exporter *counting
	sampler  sdk.Sampler // of traces that begin here
}

// exportTimeout bounds one batch, and with it how long Close may take.
const exportTimeout = 5 * time.Second

// New returns a tracer. The receiver need not be reachable: spans that cannot be sent are dropped
// and counted.
func New(o Options) (*Tracer, error) {
	u, err := url.Parse(o.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("tracing.endpoint: %w", err)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	client, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(u.String()), otlptracehttp.WithTimeout(exportTimeout))
	if err != nil {
		return nil, fmt.Errorf("tracing.endpoint: %w", err)
	}
	t := &Tracer{exporter: &counting{to: client}, sampler: sdk.TraceIDRatioBased(o.Sample)}
	t.provider = sdk.NewTracerProvider(
		sdk.WithBatcher(t.exporter, sdk.WithBatchTimeout(time.Second), sdk.WithExportTimeout(exportTimeout)),
		sdk.WithSampler(sdk.ParentBased(t.sampler)),
		sdk.WithIDGenerator(ids{}),
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", "adbuffer"), attribute.String("service.version", o.Version))),
	)
	t.tracer = t.provider.Tracer("adbuffer")
	return t, nil
}

// Close sends the remaining spans until ctx ends.
func (t *Tracer) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// Exchange is what a span describes: one request to an SSP.
type Exchange struct {
	SSP         string
	RequestID   []byte         // empty for none
	TraceParent []byte         // the client's field; empty for none
	Trace       upstream.Trace // what Begin returned
	Endpoint    string         // host:port
	Attempts    int
	Method      upstream.Method
	Protocol    upstream.Protocol
	Reused      bool
	Outcome     upstream.Outcome
	Status      int             // of the response; 0 = there is none
	Err         *upstream.Error // nil if there is a response
	Times       upstream.Times
}

// Ended makes the spans of an exchange, if it is sampled:
//
//	ssp          from the queue to the end
//	├ pending    until a place was acquired
//	│ ├ dial     DNS and TCP, if a connection was opened meanwhile
//	│ └ tls      its handshake
//	└ first_byte from then until the response began
//
// Of a dial only the end is known, which is when the place was acquired.
func (t *Tracer) Ended(e *Exchange) {
	if e.Trace.IsZero() {
		return
	}
	ctx := context.Background()
	if parent, ok := parseTraceParent(e.TraceParent); ok {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	x := &e.Times
	_, span := t.tracer.Start(context.WithValue(ctx, begun{}, &e.Trace), "ssp "+e.SSP, trace.WithTimestamp(x.Queued), trace.WithSpanKind(trace.SpanKindClient))
	if !span.IsRecording() {
		return // not sampled
	}
	defer span.End(trace.WithTimestamp(x.Done))
	ctx = trace.ContextWithSpan(ctx, span) // without begun, so that the spans below get ids of their own
	t.exporter.made.Add(1)
	span.SetAttributes(
		attribute.String("adbuffer.ssp", e.SSP), attribute.String("adbuffer.outcome", e.Outcome.String()),
		attribute.String("http.request.method", e.Method.String()), attribute.String("adbuffer.protocol", e.Protocol.String()),
		attribute.Bool("adbuffer.reused", e.Reused),
	)
	span.SetAttributes(conventions(e)...)
	if len(e.RequestID) > 0 {
		span.SetAttributes(attribute.String("adbuffer.request_id", string(e.RequestID)))
	}
	if e.Status > 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", e.Status))
	}
	if e.Err != nil {
		span.SetStatus(codes.Error, e.Err.Detail) // never bytes of a request or a response
	}
	if x.Acquired.IsZero() {
		t.part(ctx, "pending", x.Queued, x.Done) // no place was acquired
		return
	}
	pending := t.part(ctx, "pending", x.Queued, x.Acquired)
	if handshake := x.Acquired.Add(-x.TLS); x.TCP > 0 {
		t.part(pending, "dial", handshake.Add(-x.TCP-x.DNS), handshake, attribute.Float64("adbuffer.dns_seconds", x.DNS.Seconds()))
		if x.TLS > 0 {
			t.part(pending, "tls", handshake, x.Acquired)
		}
	}
	if !x.FirstByte.IsZero() {
		t.part(ctx, "first_byte", x.Acquired, x.FirstByte)
	}
}

// conventions are the attributes of OpenTelemetry's semantic conventions for HTTP clients.
func conventions(e *Exchange) (all []attribute.KeyValue) {
	if version := map[upstream.Protocol]string{upstream.HTTP1: "1.1", upstream.HTTP1Pipelined: "1.1", upstream.HTTP2: "2"}[e.Protocol]; version != "" {
		all = append(all, attribute.String("network.protocol.name", "http"), attribute.String("network.protocol.version", version))
	}
	if host, port, err := net.SplitHostPort(e.Endpoint); err == nil {
		all = append(all, attribute.String("server.address", host))
		if n, err := strconv.Atoi(port); err == nil {
			all = append(all, attribute.Int("server.port", n))
		}
	}
	if e.Attempts > 1 {
		all = append(all, attribute.Int("http.request.resend_count", e.Attempts-1))
	}
	switch {
	case e.Err != nil:
		all = append(all, attribute.String("error.type", e.Outcome.String()))
	case e.Status >= 400:
		all = append(all, attribute.String("error.type", strconv.Itoa(e.Status)))
	}
	return all
}

// part makes one span below that of ctx, and returns a context for its children.
func (t *Tracer) part(ctx context.Context, name string, from, to time.Time, attributes ...attribute.KeyValue) context.Context {
	ctx, span := t.tracer.Start(ctx, name, trace.WithTimestamp(from), trace.WithAttributes(attributes...))
	span.End(trace.WithTimestamp(to))
	t.exporter.made.Add(1)
	return ctx
}

// Collect implements prometheus.Collector.
func (t *Tracer) Collect(ch chan<- prometheus.Metric) { t.exporter.collect(ch) }

// Describe implements prometheus.Collector.
func (t *Tracer) Describe(ch chan<- *prometheus.Desc) { ch <- descSpans }
