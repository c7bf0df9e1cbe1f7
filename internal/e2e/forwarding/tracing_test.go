package forwarding

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

// otlpReceiver takes spans over HTTP, as a collector does.
type otlpReceiver struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*otlp.Span
}

func startOTLPReceiver(t *testing.T) *otlpReceiver {
	r := new(otlpReceiver)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var v collector.ExportTraceServiceRequest
		body, err := io.ReadAll(req.Body)
		if err == nil {
			err = proto.Unmarshal(body, &v)
		}
		if err != nil || req.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", req.URL.Path, err)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, rs := range v.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				r.spans = append(r.spans, ss.Spans...)
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// named returns the spans of this name.
func (r *otlpReceiver) named(name string) (found []*otlp.Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

const (
	traceID     = "4bf92f3577b34da6a3ce929d0e0e4736"
	traceParent = "00-" + traceID + "-00f067aa0ba902b7-01"
)

func TestSpansSayWhereARequestsTimeWent(t *testing.T) {
	t.Parallel()
	ssp := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.TLSAuto, Record: 10, Behaviour: sspsim.Behaviour{Latency: sspsim.Constant(20 * time.Millisecond)}})
	r := startOTLPReceiver(t)
	ab := e2e.Start(t, e2e.Single(ssp.URL(), "tls: {ca_file: "+e2e.CAFile(t, ssp)+"}"), "ADBUFFER_TRACING_ENDPOINT="+r.URL, "ADBUFFER_TRACING_SAMPLE=0")
	ab.Get("/fillbuffer", "traceparent: "+traceParent, "tracestate: vendor=1") // dials
	ab.Get("/fillbuffer", "traceparent: "+traceParent)                         // does not
	ab.Get("/fillbuffer")                                                      // is not sampled
	testsupport.Eventually(t, "the spans of two requests come", func() bool { return len(r.named("first_byte")) >= 2 })

	for name, want := range map[string]int{"ssp openx": 2, "pending": 2, "dial": 1, "tls": 1, "first_byte": 2} {
		spans := r.named(name)
		if len(spans) != want {
			t.Errorf("%d spans %s, want %d", len(spans), name, want)
		}
		for _, s := range spans {
			if hex.EncodeToString(s.TraceId) != traceID {
				t.Errorf("%s is of trace %x, not of the client's", name, s.TraceId)
			}
			if s.EndTimeUnixNano < s.StartTimeUnixNano {
				t.Errorf("%s ends before it begins", name)
			}
		}
	}
	for _, s := range r.named("first_byte") {
		if took := time.Duration(s.EndTimeUnixNano - s.StartTimeUnixNano); took < 20*time.Millisecond {
			t.Errorf("the first byte came after %v, from an SSP that takes 20ms", took)
		}
	}
	ab.AwaitMetric(8, "adbuffer_trace_spans_total", "state=sent")
	ab.WantMetric(8, "adbuffer_trace_spans_total", "state=made")
	all := ssp.Requests()
	if len(all) != 3 || all[0].Get("Tracestate") != "vendor=1" || all[2].Get("Traceparent") != "" {
		t.Fatalf("the SSP was sent %+v", all)
	}
	ours := make(map[string]bool)
	for _, s := range r.named("ssp openx") {
		ours["00-"+traceID+"-"+hex.EncodeToString(s.SpanId)+"-01"] = true
	}
	if len(ours) != 2 || !ours[all[0].Get("Traceparent")] || !ours[all[1].Get("Traceparent")] {
		t.Errorf("the SSP was sent %s and %s, and our spans are %v", all[0].Get("Traceparent"), all[1].Get("Traceparent"), ours)
	}
}

func TestTraceparentCrossesWithoutTracing(t *testing.T) {
	t.Parallel()
	ssp := e2e.Healthy(t)
	ab := e2e.Start(t, e2e.Single(ssp.URL()))
	ab.Get("/fillbuffer", "traceparent: "+traceParent, "tracestate: vendor=1")
	if h := e2e.LastRequest(t, ssp); h.Get("Traceparent") != traceParent || h.Get("Tracestate") != "vendor=1" {
		t.Errorf("the SSP was sent %v", h.Header)
	}
	if n := len(ab.Scrape().All("adbuffer_trace_spans_total")); n != 0 {
		t.Errorf("%d series about spans while there are none", n)
	}
}

// Spans that no receiver takes are dropped and counted. They delay neither requests nor the drain.
func TestRequestsGoOnWithoutTheOTLPReceiver(t *testing.T) {
	t.Parallel()
	r := startOTLPReceiver(t)
	r.Close()
	ab := e2e.Start(t, e2e.Single(e2e.Healthy(t).URL()), "ADBUFFER_TRACING_ENDPOINT="+r.URL, "ADBUFFER_TRACING_SAMPLE=1")
	for range 20 {
		if a := ab.Get("/fillbuffer"); a.Status != 200 {
			t.Fatalf("got %d", a.Status)
		}
	}
	testsupport.Eventually(t, "the spans count as failed", func() bool { return ab.Metric("adbuffer_trace_spans_total", "state=failed") > 0 })
	ab.WantMetric(0, "adbuffer_trace_spans_total", "state=sent")
}
