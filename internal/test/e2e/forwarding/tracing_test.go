package forwarding

import (
	"fmt"
	"maps"
	"net/url"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

const (
	traceID     = "4bf92f3577b34da6a3ce929d0e0e4736"
	traceParent = "00-" + traceID + "-00f067aa0ba902b7-01"
)

// A waterfall with a retry has one span for the request, one below it for each tier, and one below
// that for each attempt.
func TestEveryTierAndEveryAttemptHasASpan(t *testing.T) {
	t.Parallel()
	refusing := sspsim.Options{Protocol: sspsim.H2C, Record: 10, Behaviour: sspsim.Behaviour{
		Response: sspsim.Response{NoBid: sspsim.Always}, Faults: sspsim.Faults{RefuseStream: sspsim.Every(2)},
	}}
	a, b, c := e2e.StartSSP(t, refusing), respondingWith(t, 500), e2e.Healthy(t)
	r := e2e.StartOTLPReceiver(t)
	ab := e2e.Start(t, fmt.Sprintf(`
server: {trusted_proxies: [127.0.0.0/8]}
tracing: {endpoint: %q, sample: 0}
ssps:
  - {name: a, endpoints: [%q], protocol: h2c}
  - {name: b, endpoints: [%q]}
  - {name: c, endpoints: [%q]}
routes:
  - {name: default, match: {path: /fillbuffer}, mode: waterfall, ssps: [a, b, c]}
`, r.URL, a.URL(), b.URL(), c.URL()))
	ab.Get("/fillbuffer").WantFill("c") // the first stream is not refused
	client := ab.Dial()
	client.Send("GET /fillbuffer HTTP/1.0\r\nHost: ads.example\r\nTraceparent: " + traceParent + "\r\nX-Request-Id: edge-1\r\n\r\n")
	client.Read("GET").WantFill("c")
	// The spans of one request may arrive in two batches.
	ab.AwaitMetric(ab.Metric("adbuffer_trace_spans_total", "state=made"), "adbuffer_trace_spans_total", "state=sent")
	request := r.Named("GET default")[0]
	for key, want := range map[string]string{
		"adbuffer.request_id": "edge-1", "network.protocol.version": "1.0", "adbuffer.outcome": "fill", "http.response.status_code": "200", "url.scheme": "http", "url.path": "/fillbuffer",
	} {
		testsupport.Equal(t, e2e.Attribute(request, key), want, "the request's span has %[2]s=%[1]q", key)
	}
	legs := make(map[string]string) // SSPs by span id
	for _, name := range []string{"a", "b", "c"} {
		all := r.Named("ssp " + name)
		testsupport.MustTrue(t, len(all) == 1 && string(all[0].ParentSpanId) == string(request.SpanId), "%d legs of %s, want one below the request", len(all), name)
		legs[string(all[0].SpanId)] = name
	}
	got := make(map[string]int)
	last := make(map[string]string) // traceparent by SSP
	for _, s := range r.Named("attempt") {
		name := legs[string(s.ParentSpanId)]
		u, err := url.Parse(map[string]*sspsim.SSP{"a": a, "b": b, "c": c}[name].URL())
		testsupport.NoError(t, err)
		if host, port := e2e.Attribute(s, "server.address"), e2e.Attribute(s, "server.port"); host != u.Hostname() || port != u.Port() {
			t.Errorf("an attempt of %s was sent to %s, port %s, but the SSP is %s", name, host, port, u.Host)
		}
		got[name+" "+e2e.Attribute(s, "network.protocol.version")+" "+e2e.Attribute(s, "http.response.status_code")+" "+e2e.Attribute(s, "error.type")+" "+e2e.Attribute(s, "http.request.resend_count")]++
		if e2e.Attribute(s, "error.type") != "conn_lost" {
			last[name] = fmt.Sprintf("00-%x-%x-01", s.TraceId, s.SpanId)
		}
	}
	want := map[string]int{"a 2  conn_lost ": 1, "a 2 204  1": 1, "b 1.1 500 500 ": 1, "c 1.1 200  ": 1}
	testsupport.True(t, maps.Equal(got, want), "attempts %v, want %v", got, want)
	for name, ssp := range map[string]*sspsim.SSP{"a": a, "b": b, "c": c} {
		testsupport.Equal(t, e2e.LastRequest(t, ssp).Get("Traceparent"), last[name], "%[2]s got %[1]q, but not its last attempt", name)
	}
}
