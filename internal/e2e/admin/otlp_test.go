package admin

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/e2e"
	"adbuffer/internal/testsupport"
)

// Every metric of /metrics arrives at the receiver that OpenTelemetry's variables name. While it is
// away, requests are served, exports are counted, and the log says it once. A reload moves to a
// receiver that works, and the last export has the last request.
func TestMetricsArriveAtAnOTLPReceiver(t *testing.T) {
	t.Parallel()
	r := e2e.StartOTLPReceiver(t)
	config := e2e.Single(e2e.Healthy(t).URL()) + "metrics: {otlp: {interval: 1s}}\n"
	ab := e2e.Start(t, config, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+testsupport.FreeAddr(t))
	ab.AwaitMetricAbove(1, "adbuffer_otlp_metrics_exports_total", "result=failed")
	ab.Get("/fillbuffer").WantFill("openx")
	config = strings.Replace(config, "otlp: {", "otlp: {endpoint: \""+r.URL+"\", ", 1)
	ab.Take(config)
	ab.AwaitMetricAbove(0, "adbuffer_otlp_metrics_exports_total", "result=sent")
	for name := range ab.Scrape().Types {
		if _, ok := r.Metrics()[name]; !ok {
			t.Errorf("%s does not arrive", name)
		}
	}
	testsupport.Equal(t, strings.Count(ab.Log.String(), "metrics could not be sent; see metrics.otlp.endpoint"), 1, "the log says %d times that metrics could not be sent")
	ab.Take(strings.Replace(config, "1s", "1h", 1))
	ab.Get("/fillbuffer").WantFill("openx")
	ab.Stop()
	for _, p := range r.Metrics()["adbuffer_requests_total"].GetSum().DataPoints {
		labels := make(map[string]string)
		for _, a := range p.Attributes {
			labels[a.Key] = a.Value.GetStringValue()
		}
		if maps.Equal(labels, map[string]string{"route": "default", "outcome": "fill"}) && p.GetAsDouble() != 2 {
			t.Errorf("the last export has %v requests, want 2", p.GetAsDouble())
		}
	}
	if names := slices.Sorted(maps.Keys(r.Metrics())); !slices.Contains(names, "go_goroutines") {
		t.Errorf("the Go runtime's metrics are missing: %v", names)
	}
}
