package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	metricscollector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlpmetrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// OTLPReceiver receives spans and metrics over HTTP, as a collector does.
type OTLPReceiver struct {
	*httptest.Server
	mu      sync.Mutex
	spans   []*otlp.Span
	metrics map[string]*otlpmetrics.Metric // of the last export, by name
}

func StartOTLPReceiver(t *testing.T) *OTLPReceiver {
	r := new(OTLPReceiver)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var spans collector.ExportTraceServiceRequest
		var metrics metricscollector.ExportMetricsServiceRequest
		message, ok := map[string]proto.Message{"/v1/traces": &spans, "/v1/metrics": &metrics}[req.URL.Path]
		body, err := io.ReadAll(req.Body)
		if err == nil && ok {
			err = proto.Unmarshal(body, message)
		}
		if err != nil || !ok {
			t.Errorf("%s: %v", req.URL.Path, err)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, rs := range spans.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				r.spans = append(r.spans, ss.Spans...)
			}
		}
		for _, rm := range metrics.ResourceMetrics {
			r.metrics = make(map[string]*otlpmetrics.Metric)
			for _, m := range rm.ScopeMetrics[0].Metrics {
				r.metrics[m.Name] = m
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// Named returns the spans of this name.
func (r *OTLPReceiver) Named(name string) (found []*otlp.Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// Metrics returns the metrics of the last export, by name.
func (r *OTLPReceiver) Metrics() map[string]*otlpmetrics.Metric {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.metrics
}

// Attribute returns the value of a span's attribute as a text, "" if it has none.
func Attribute(s *otlp.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key != key {
			continue
		}
		if text := a.Value.GetStringValue(); text != "" {
			return text
		}
		return strconv.FormatInt(a.Value.GetIntValue(), 10)
	}
	return ""
}
