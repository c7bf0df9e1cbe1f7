package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// OTLPReceiver receives spans over HTTP, as a collector does.
type OTLPReceiver struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*otlp.Span
}

func StartOTLPReceiver(t *testing.T) *OTLPReceiver {
	r := new(OTLPReceiver)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var spans collector.ExportTraceServiceRequest
		body, err := io.ReadAll(req.Body)
		if err == nil {
			err = proto.Unmarshal(body, &spans)
		}
		if err != nil || req.URL.Path != "/v1/traces" {
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
