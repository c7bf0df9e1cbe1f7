// Package tracing sends spans over OTLP that show where a request's time went:
//
//	GET default       the client's request, from the moment when it was read whole
//	└ ssp openx       a leg: one SSP's part of it
//	  └ attempt       one sending, a retry or a hedge; the SSP's own span is below it
//	    ├ pending     until a place was acquired
//	    │ ├ dial      DNS and TCP, if a connection was opened meanwhile
//	    │ └ tls       its handshake
//	    └ first_byte  from then until the response began
//
// A traced request records its ids and attempts while it runs. Its spans are made at its end. A
// request that is not traced costs one comparison.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"adbuffer/internal/machine/metrics"
)

// Options are the settings `tracing`.
type Options struct {
	// Endpoint is the URL of an OTLP receiver over HTTP. The path defaults to /v1/traces.
	Endpoint string
	// Sample is the share, 0 to 1, of the requests to trace for which no trusted peer decides.
	Sample float64
	// Version is the version of the process.
	Version string
	// Warn is called with the reason when a batch of spans cannot be sent, unless the batch before it failed too. It
	// may be nil.
	Warn func(error)
}

// Tracer exports spans in batches, in the background. It is safe for concurrent use. It must be closed.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	exporter *countingExporter
	sampler  sampler
}

// exportTimeout bounds the sending of one batch.
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
	client, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(u.String()), otlptracehttp.WithTimeout(exportTimeout),
		otlptracehttp.WithProxy(proxyWithoutRedirects))
	if err != nil {
		return nil, fmt.Errorf("tracing.endpoint: %w", err)
	}
	t := &Tracer{exporter: &countingExporter{to: client, warn: o.Warn}}
	t.sampler.init(&o)
	t.provider = sdk.NewTracerProvider(
		sdk.WithBatcher(t.exporter, sdk.WithBatchTimeout(time.Second), sdk.WithExportTimeout(exportTimeout)),
		sdk.WithSampler(sdk.AlwaysSample()), // Begin has decided
		sdk.WithIDGenerator(chosenIDs{}),
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", "adbuffer"), attribute.String("service.version", o.Version))),
	)
	t.tracer = t.provider.Tracer("adbuffer")
	return t, nil
}

var errRedirect = errors.New("the receiver answered with a redirect, which adbuffer does not follow, since spans and keys are for the receiver only; set tracing.endpoint to the receiver's own URL")

// proxyWithoutRedirects returns the proxy that the environment names. For a redirected request it returns an error. A
// CheckRedirect would need an HTTP client of our own, which would ignore the TLS settings that otlptracehttp reads
// from the environment.
func proxyWithoutRedirects(r *http.Request) (*url.URL, error) {
	if r.Response != nil {
		return nil, errRedirect
	}
	return http.ProxyFromEnvironment(r)
}

// Close sends the remaining spans until ctx ends.
func (t *Tracer) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// Descs describe the metrics of a Tracer.
var Descs metrics.Descs

// Collect writes t's metrics.
func (t *Tracer) Collect(to metrics.Sink) {
	for state, n := range map[string]*atomic.Uint64{
		"made": &t.exporter.made, "sent": &t.exporter.sent, "failed": &t.exporter.failed, "over_limit": &t.sampler.overLimit,
	} {
		to.Counter(descSpans, n.Load(), state)
	}
}
