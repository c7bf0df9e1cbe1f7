package failing

import (
	"strings"
	"sync"
	"testing"
	"time"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

// The SSP closes each HTTP/2 connection after one request (GOAWAY). Before, eight clients lost a
// quarter of their requests, each after ten refusals within milliseconds.
func TestGoAwayAfterEveryStreamLosesNoRequest(t *testing.T) {
	t.Parallel()
	const clients, each = 8, 50
	for _, row := range []struct {
		name     string
		protocol sspsim.Protocol
		settings func(*sspsim.SSP) string
		goaway   sspsim.GoAway
	}{
		{"cleartext", sspsim.H2C, func(*sspsim.SSP) string { return "protocol: h2c" }, sspsim.GoAway{Chance: sspsim.Always}},
		{"TLS", sspsim.TLSAuto, func(s *sspsim.SSP) string { return e2e.Trust(t, s) }, sspsim.GoAway{Chance: sspsim.Always}},
		// The GOAWAY that a request causes excludes every other request.
		{"left out", sspsim.H2C, func(*sspsim.SSP) string { return "protocol: h2c" }, sspsim.GoAway{Chance: sspsim.Every(2), Exclude: true}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := e2e.StartSSP(t, sspsim.Options{Protocol: row.protocol, Behaviour: sspsim.Behaviour{Faults: sspsim.Faults{GoAway: row.goaway}}})
			ab := e2e.Start(t, e2e.Single(s.URL(), row.settings(s)))
			var wg sync.WaitGroup
			began := time.Now()
			for range clients {
				wg.Go(func() {
					c := ab.Dial()
					for range each {
						c.Post("/fillbuffer", `{"id":"1"}`).WantFill("openx")
					}
				})
			}
			wg.Wait()
			n := s.Counters()
			t.Logf("%d requests in %v, on %d connections", n.Requests, time.Since(began), n.Connections)
			e2e.WantRequests(t, s, clients*each) // none was processed twice
			ab.WantMetric(clients*each, "adbuffer_ssp_requests_total", "outcome=fill")
			if again := ab.Metric("adbuffer_retries_total", "kind=not_processed"); again > 4*clients*each {
				t.Errorf("%v requests were sent again, of %d", again, clients*each)
			}
		})
	}
}

// An SSP that refuses every stream costs a bounded number of attempts. Then the request ends with
// the SSP's error. If its deadline passes during an attempt, it ends as deadline, and the test
// sends another one.
func TestSSPThatRefusesEveryStreamGetsNoLoopOfRequests(t *testing.T) {
	t.Parallel()
	s := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.H2C, Behaviour: sspsim.Behaviour{Faults: sspsim.Faults{RefuseStream: sspsim.Always}}})
	ab := e2e.Start(t, e2e.Single(s.URL(), "protocol: h2c", "breaker: {enabled: false}"))
	retries := func() float64 { return ab.Metric("adbuffer_retries_total", "kind=not_processed") }
	testsupport.Eventually(t, "a request fails with REFUSED_STREAM after ten retries", func() bool {
		before := retries()
		a := ab.Post("/fillbuffer", "{}", "X-Adbuffer-Timeout-Ms: 1000")
		n := retries() - before
		if n > 60 {
			t.Errorf("the request was sent again %v times in a second", n)
		}
		if a.Header("X-Adbuffer-Source") == "proxy/deadline" {
			a.WantStatus("the deadline passed during an attempt", 504)
			return false
		}
		a.WantStatus("a request", 502).WantSource("proxy/conn_lost")
		if e := e2e.ErrorOf(a); e.SSP != "openx" || !strings.Contains(e.Detail, "REFUSED_STREAM") {
			t.Errorf("the error is %s", a.Body)
		}
		return n >= 10 || t.Failed()
	})
}

// Only statements of the protocol prove that a request was not processed. Before, a POST was
// processed eleven times.
func TestResetStreamsSendNoPostTwice(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, protocol string
		reset          sspsim.ResetStream
		asked          uint64
	}{
		{"REFUSED_STREAM behind the response's header", "http2", sspsim.ResetStream{Chance: sspsim.Always, Code: "REFUSED_STREAM", AfterHead: true}, 1},
		{"HTTP_1_1_REQUIRED where HTTP 2 alone is allowed", "http2", sspsim.ResetStream{Chance: sspsim.Always, Code: "HTTP_1_1_REQUIRED"}, 1},
		{"HTTP_1_1_REQUIRED behind the response's header", "auto", sspsim.ResetStream{Chance: sspsim.Always, Code: "HTTP_1_1_REQUIRED", AfterHead: true}, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.TLSAuto, Behaviour: sspsim.Behaviour{Faults: sspsim.Faults{ResetStream: row.reset}}})
			ab := e2e.Start(t, e2e.Single(s.URL(), "protocol: "+row.protocol, e2e.Trust(t, s)))
			ab.WantRefusal("the POST", e2e.Refusal{Status: 502, Reason: "conn_lost", SSP: "openx", Names: []string{row.reset.Code}},
				func() *e2e.Response { return ab.Post("/fillbuffer", "{}") })
			e2e.WantRequests(t, s, row.asked)
		})
	}
}

// After HTTP_1_1_REQUIRED the SSP gets the request over HTTP/1.
func TestRequestThatTheSSPWantsOverHTTP1IsSentOverHTTP1(t *testing.T) {
	t.Parallel()
	s := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.TLSAuto, Record: 2, Behaviour: sspsim.Behaviour{Faults: sspsim.Faults{
		ResetStream: sspsim.ResetStream{Chance: sspsim.Always, Code: "HTTP_1_1_REQUIRED"},
	}}})
	ab := e2e.Start(t, e2e.Single(s.URL(), e2e.Trust(t, s)))
	ab.Post("/fillbuffer", `{"id":"1"}`).WantFill("openx")
	if n := s.Counters().HTTP2Connections; n != 1 {
		t.Errorf("%d HTTP/2 connections, want 1", n)
	}
	e2e.WantRequests(t, s, 2) // refused over HTTP/2, and then over HTTP/1
}
