package admin

import (
	"encoding/hex"
	"fmt"
	"net/url"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// A point of a graph leads to a trace: Prometheus keeps the exemplars of the durations of requests
// that are traced.
func TestPrometheusKeepsExemplarsOfTracedRequests(t *testing.T) {
	t.Parallel()
	r := e2e.StartOTLPReceiver(t)
	ab := e2e.Start(t, e2e.Single(e2e.Healthy(t).URL()), "ADBUFFER_TRACING_ENDPOINT="+r.URL, "ADBUFFER_TRACING_SAMPLE=1")
	p := startPrometheus(t, ab, prometheusOptions{features: "exemplar-storage"})
	ab.Get("/fillbuffer").WantFill("openx")
	testsupport.Eventually(t, "the request's span arrives", func() bool { return len(r.Named("GET default")) == 1 })
	want := hex.EncodeToString(r.Named("GET default")[0].TraceId)
	for _, name := range []string{"adbuffer_request_duration_seconds_bucket", "adbuffer_ssp_request_duration_seconds_bucket", "adbuffer_ssp_first_byte_seconds_bucket"} {
		var got []string
		testsupport.Eventually(t, "Prometheus has an exemplar of "+name, func() bool { got = p.traces(name); return len(got) > 0 })
		testsupport.True(t, len(got) == 1 && got[0] == want, "%s has exemplars of the traces %v, want %s", name, got, want)
	}
	if got := p.traces("adbuffer_pool_hold_seconds_bucket"); len(got) != 0 {
		t.Errorf("a histogram of another kind has exemplars of %v", got)
	}
}

// traces returns the traces of a metric's exemplars.
func (p *prometheusServer) traces(name string) (all []string) {
	p.t.Helper()
	now := time.Now()
	q := url.Values{"query": {name}, "start": {now.Add(-time.Hour).Format(time.RFC3339)}, "end": {now.Add(time.Hour).Format(time.RFC3339)}}
	var found []struct {
		Exemplars []struct{ Labels map[string]string }
	}
	p.read("/api/v1/query_exemplars?"+q.Encode(), &found)
	for _, series := range found {
		for _, e := range series.Exemplars {
			all = append(all, e.Labels["trace_id"])
		}
	}
	return all
}

// Prometheus requests protobuf if its native histograms are on, and computes quantiles from them.
func TestPrometheusScrapesNativeHistograms(t *testing.T) {
	t.Parallel()
	const n = 20
	s := e2e.StartSSP(t, sspsim.Options{Behaviour: sspsim.Behaviour{Latency: sspsim.Constant(40 * time.Millisecond)}})
	ab := e2e.Start(t, e2e.Single(s.URL()))
	p := startPrometheus(t, ab, prometheusOptions{features: "native-histograms"})
	c := ab.Dial()
	for range n {
		c.Get("/fillbuffer").WantFill("openx")
	}
	for _, series := range []string{`adbuffer_request_duration_seconds{route="default"}`, `adbuffer_ssp_request_duration_seconds{ssp="openx"}`, "adbuffer_endpoint_request_duration_seconds"} {
		p.await(fmt.Sprintf("histogram_count(%s)", series), n)
		var median float64
		testsupport.Eventually(t, "Prometheus computes the median of "+series, func() (ok bool) { // no series if the last scrape failed
			median, ok = p.query(fmt.Sprintf("histogram_quantile(0.5, %s)", series))
			return ok
		})
		if median < 0.037 || median > 10 { // 40 ms are in the bucket that begins at 2^(-19/4) s
			t.Errorf("the median of %s is %v, want at least 37 ms", series, median)
		}
	}
}
