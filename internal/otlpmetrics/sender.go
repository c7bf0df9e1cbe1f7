// Package otlpmetrics sends the series of /metrics to an OTLP receiver, at an interval. Names, labels
// and buckets are those of /metrics.
package otlpmetrics

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"

	"adbuffer/internal/metrics"
)

// Receiver is a receiver of metrics, with the keys of `metrics.otlp`. Package config says what the tags mean.
type Receiver struct {
	// Endpoint is the URL of an OTLP receiver over HTTP; "" = nothing is sent. Without a path, it
	// means /v1/metrics.
	Endpoint string        `yaml:"endpoint" form:"URL of a metrics receiver" hide:"url"`
	Interval time.Duration `yaml:"interval" default:"15s" min:"1s" max:"1h"` // between two exports
}

// Options are what a Sender needs for its whole life.
type Options struct {
	// Gather returns the current series. The Sender may change the messages.
	Gather func() ([]*dto.MetricFamily, error)
	// Version is the version of the process, Instance its name, which no other process has.
	Version, Instance string
	// Warn is called once when exports begin to fail or to lack series, with the reason.
	Warn func(message string, err error)
}

// exportLimit bounds one export, with its retries.
const exportLimit = 10 * time.Second

// closeLimit bounds the last export of a receiver that a reload replaces.
const closeLimit = 2 * time.Second

// Sender sends the series of one process, in the background. Requests never wait for it. Close ends
// it.
type Sender struct {
	opts   Options
	counts counts

	mu       sync.Mutex // guards the fields below
	settings Receiver
	provider *sdk.MeterProvider // nil = nothing is sent
	closed   bool
	leaving  sync.WaitGroup // providers that a reload has replaced
}

// New returns a Sender that sends nothing yet.
func New(o Options) *Sender { return &Sender{opts: o, counts: counts{warn: o.Warn}} }

// Apply starts to send as s says, or stops. The receiver need not be reachable. The counts continue.
// After Close it does nothing.
func (s *Sender) Apply(next Receiver) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || next == s.settings {
		return nil
	}
	var provider *sdk.MeterProvider
	if next.Endpoint != "" {
		var err error
		provider, err = s.newProvider(next)
		if err != nil {
			return fmt.Errorf("metrics.otlp.endpoint: %w", err)
		}
	}
	if was := s.provider; was != nil {
		s.leaving.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
			defer cancel()
			was.Shutdown(ctx) //nolint:errcheck // a failed export is counted
		})
	}
	s.settings, s.provider = next, provider
	return nil
}

func (s *Sender) newProvider(to Receiver) (*sdk.MeterProvider, error) {
	u, err := url.Parse(to.Endpoint)
	if err != nil {
		return nil, err
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/metrics"
	}
	ctx := context.Background()
	exporter, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(u.String()))
	if err != nil {
		return nil, err
	}
	// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES come last, and win.
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "adbuffer"), attribute.String("service.version", s.opts.Version), attribute.String("service.instance.id", s.opts.Instance),
	), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		s.opts.Warn("OTEL_RESOURCE_ATTRIBUTES is used in part", err)
	}
	reader := sdk.NewPeriodicReader(&countingExporter{exporter, &s.counts}, sdk.WithInterval(to.Interval), sdk.WithTimeout(min(to.Interval, exportLimit)),
		sdk.WithProducer(newProducer(s.opts.Gather, &s.counts)))
	return sdk.NewMeterProvider(sdk.WithReader(reader), sdk.WithResource(about)), nil
}

// Close sends the series once more, until ctx ends, and stops.
func (s *Sender) Close(ctx context.Context) {
	s.mu.Lock()
	provider := s.provider
	s.provider, s.closed = nil, true
	s.mu.Unlock()
	if provider != nil {
		provider.Shutdown(ctx) //nolint:errcheck // a failed export is counted
	}
	s.leaving.Wait()
}

// Descs describe the metrics of a Sender.
var Descs metrics.Descs

var descExports = Descs.New("adbuffer_otlp_metrics_exports_total", "Exports of all series to metrics.otlp.endpoint, by result: sent, failed, or incomplete (sent without the series of a collector that failed).", "result")

// Collect writes the Sender's metrics. While nothing is sent, there are none.
func (s *Sender) Collect(to metrics.Sink) {
	s.mu.Lock()
	on := s.settings.Endpoint != ""
	s.mu.Unlock()
	if on {
		s.counts.collect(to)
	}
}
