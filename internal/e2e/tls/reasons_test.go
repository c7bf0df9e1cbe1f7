package tls

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

// said is the content of a response that both protocols must share.
type said struct {
	status        int
	source, allow string
	body          string
}

// digits matches the parts that differ from request to request: the milliseconds left, and the id.
var digits = regexp.MustCompile(`[0-9.]+(µs|ms|s)\b|"id":"[0-9a-f-]{36}"`)

func ask(t *testing.T, client *http.Client, method, url, body string, fields []string) said {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	testsupport.NoError(t, err)
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		req.Header.Set(name, value)
	}
	res, err := client.Do(req)
	testsupport.MustTrue(t, err == nil, "%s %s: %v", method, url, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	testsupport.MustTrue(t, err == nil, "%s %s: %v", method, url, err)
	return said{res.StatusCode, res.Header.Get("X-Adbuffer-Source"), res.Header.Get("Allow"), digits.ReplaceAllString(string(b), "N")}
}

// Every error is the same over HTTP/2 and HTTP/1.1: the same status,
// source, fields and body, and the same counters.
func TestErrorsAreTheSameOverHTTP2(t *testing.T) {
	t.Parallel()
	e, ok := e2e.NewAuthority(t), e2e.Healthy(t)
	full, late := e2e.StartGated(t, sspsim.Options{}), e2e.StartGated(t, sspsim.Options{})
	untrusted := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.TLSHTTP1})
	failed := func(f sspsim.Faults) string { return e2e.Failing(t, f).URL() }
	ab := e2e.Start(t, e.ServerSection(", max_body_bytes: 2000, max_header_bytes: 4096")+fmt.Sprintf(`
ssps:
  - {name: ok, endpoints: [%q]}
  - {name: refused, endpoints: [%q]}
  - {name: untrusted, endpoints: [%q], retry: {max: 0}, pool: {dial_backoff: {min: 1ms, max: 1ms}}}
  - {name: reset, endpoints: [%q]}
  - {name: malformed, endpoints: [%q]}
  - {name: oversized, endpoints: [%q]}
  - {name: full, endpoints: [%q], pool: {max_conns: 1, max_pending: 0}}
  - {name: late, endpoints: [%q], pool: {max_conns: 1, pending_timeout: 30ms}}
  - {name: limited, endpoints: [%q], qps: {limit: 0.001, burst: 1}}
  - {name: paused, endpoints: [%q], retry_after_share: 0, retry_after_max: 1h}
  - {name: busy, endpoints: [%q], max_in_flight: 1}
  - {name: broken, endpoints: [%q], breaker: {window: 10m, min_requests: 1, min_probe: 0.001}}
routes:
  - {name: default, match: {path: /fillbuffer}, client_choice: true, ssps: [ok, refused, untrusted, reset, malformed, oversized, full, late, limited, paused, busy, broken]}
  - {name: all, match: {path: /all}, mode: parallel-all, ssps: [ok]}
`, ok.URL(), failed(sspsim.Faults{Refuse: true}), untrusted.URL(), failed(sspsim.Faults{Reset: sspsim.Always}),
		failed(e2e.Malformed(sspsim.BadChunk)), failed(sspsim.Faults{OversizedBody: sspsim.Oversized{Chance: sspsim.Always}}),
		full.URL(), late.URL(), ok.URL(), failed(sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always, Code: 429, RetryAfter: sspsim.Duration(time.Hour)}}), full.URL(),
		failed(sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always, Code: 500}})),
		// Requests that wait at the SSPs full, late and busy must not reach their deadline
		// meanwhile.
		"ADBUFFER_DEADLINE_DEFAULT=5m", "ADBUFFER_DEADLINE_MAX=10m")

	http1 := &http.Client{Transport: &http.Transport{TLSClientConfig: e.ClientConfig(nil, "http/1.1")}, Timeout: testsupport.Patience}
	t.Cleanup(http1.CloseIdleConnections)
	http2 := e.HTTP2Client(t)
	url := "https://" + ab.TrafficAddr
	// Some of the reasons need these preparations.
	for i, name := range []string{"full", "late", "busy"} {
		c := ab.DialTLS(e.ClientConfig(nil))
		c.Send(e2e.Request("GET", "/fillbuffer/"+name, ""))
		testsupport.Eventually(t, name+" is asked", func() bool { return ab.Metric("adbuffer_in_flight_requests") == float64(i+1) })
	}
	e2e.AwaitInFlight(t, full.SSP, 2)
	e2e.AwaitInFlight(t, late.SSP, 1)
	ask(t, http2, "GET", url+"/fillbuffer/limited", "", nil)
	ask(t, http2, "GET", url+"/fillbuffer/paused", "", nil)
	testsupport.Eventually(t, "the breaker sheds", func() bool {
		return ask(t, http2, "GET", url+"/fillbuffer/broken", "", nil).source == "proxy/breaker_open"
	})

	for _, row := range []struct {
		outcome, method, path, body string
		fields                      []string
		status                      int
	}{
		{"bad_request", "GET", "/fillbuffer?ssp=ok&ssp=full", "", nil, 400},
		{"bad_request", "POST", "/fillbuffer", "{}", []string{"X-Adbuffer-Timeout-Ms: 0"}, 400},
		{"method_not_allowed", "DELETE", "/fillbuffer", "", nil, 405},
		{"no_route", "GET", "/nowhere", "", nil, 404},
		{"unknown_ssp", "GET", "/fillbuffer/unknown", "", nil, 404},
		{"too_large", "POST", "/fillbuffer", strings.Repeat("x", 2001), nil, 413},
		{"too_large", "GET", "/fillbuffer", "", []string{"X-Long: " + strings.Repeat("x", 4096)}, 431},
		{"connect_failed", "GET", "/fillbuffer/refused", "", nil, 502},
		{"tls_failed", "GET", "/fillbuffer/untrusted", "", nil, 502},
		{"conn_lost", "POST", "/fillbuffer/reset", "{}", nil, 502},
		{"bad_response", "POST", "/fillbuffer/malformed", "{}", nil, 502},
		{"response_too_large", "POST", "/fillbuffer/oversized", "{}", nil, 502},
		{"pending_full", "GET", "/fillbuffer/full", "", nil, 503},
		{"pending_timeout", "GET", "/fillbuffer/late", "", nil, 503},
		{"qps_limit", "GET", "/fillbuffer/limited", "", nil, 503},
		{"ssp_backoff", "GET", "/fillbuffer/paused", "", nil, 503},
		{"overloaded", "GET", "/fillbuffer/busy", "", nil, 503},
		{"breaker_open", "GET", "/fillbuffer/broken", "", nil, 503},
		{"deadline", "GET", "/fillbuffer", "", []string{"X-Adbuffer-Timeout-Ms: 2"}, 504},
		{"merged", "POST", "/all", "{}", nil, 200},
		{"fill", "POST", "/fillbuffer/ok", "{}", nil, 200},
	} {
		before := outcome(ab, row.outcome)
		refused := func(client *http.Client) (got said) {
			for range 3 {
				// The breaker lets one request of a thousand pass. Then the next one must be refused.
				if got = ask(t, client, row.method, url+row.path, row.body, row.fields); row.outcome != "breaker_open" || got.source != "ssp/broken" {
					break
				}
			}
			return got
		}
		one := refused(http1)
		time.Sleep(20 * time.Millisecond) // the back-off after a failed dial has ended
		two := refused(http2)
		// The two exchanges may fail at different points, and the error text names the point.
		switch row.outcome {
		case "tls_failed", "conn_lost", "bad_response", "connect_failed", "merged", "fill":
			one.body, two.body = "", ""
		case "breaker_open", "ssp_backoff":
			one.body, two.body = errorOf(one.body), errorOf(two.body)
		}
		source := "proxy/" + row.outcome
		if row.outcome == "fill" {
			source = "ssp/ok"
		}
		if one != two || two.status != row.status || two.source != source {
			t.Errorf("%s %s: over HTTP/1.1 %+v, over HTTP/2 %+v, want %d of %s", row.method, row.path, one, two, row.status, source)
		}
		if n := outcome(ab, row.outcome) - before; n != 2 {
			t.Errorf("%s %s: %v requests counted as %s, want both", row.method, row.path, n, row.outcome)
		}
	}
	full.Open()
	late.Open()
}

// errorOf returns the reason in adbuffer's own error body.
func errorOf(body string) string {
	var own struct{ Error string }
	json.Unmarshal([]byte(body), &own)
	return own.Error
}

// outcome returns how many requests on all routes ended with an outcome.
func outcome(ab *e2e.Process, outcome string) (n float64) {
	ab.T.Helper()
	return ab.Scrape().Sum("adbuffer_requests_total", "outcome="+outcome)
}

// A load balancer in front passes TLS through, and sends the client's address in a PROXY header.
func TestThePROXYHeaderComesBeforeTLSAndHTTP2(t *testing.T) {
	t.Parallel()
	s, e := e2e.Healthy(t), e2e.NewAuthority(t)
	ab := e2e.Start(t, e.ServerSection(", proxy_protocol: true")+e2e.Single(s.URL()))
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	transport := &http.Transport{Protocols: protocols, DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, ab.Network, ab.TrafficAddr)
		if err != nil {
			return nil, err
		}
		if _, err := io.WriteString(c, proxyV1); err != nil {
			return nil, err
		}
		tc := tls.Client(c, e.ClientConfig(nil, "h2"))
		return tc, tc.HandshakeContext(ctx)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport, Timeout: testsupport.Patience}
	for i := range 2 {
		if got := ask(t, client, "GET", "https://"+e2e.ListenerName+"/fillbuffer?"+strconv.Itoa(i), "", nil); got.source != "ssp/openx" {
			t.Fatalf("%+v", got)
		}
		if got := e2e.IdentityFields(e2e.LastRequest(t, s)); len(got) != 1 || got[0] != "X-Forwarded-For: 203.0.113.7" {
			t.Errorf("the SSP received %q", got)
		}
	}
}
