package failing

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
)

// The SSP closes each HTTP/2 connection after one request (GOAWAY). Requests that several connections
// refuse in turn must still succeed.
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
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := e2e.StartSSP(t, sspsim.Options{Protocol: row.protocol, Behaviour: sspsim.Behaviour{Faults: sspsim.Faults{GoAway: row.goaway}}})
			ab := e2e.Start(t, e2e.Single(s.URL(), row.settings(s)))
			began := time.Now()
			ab.Concurrently(clients, func(w *e2e.Worker) error {
				for range each {
					a, err := w.Exchange("POST", "/fillbuffer", `{"id":"1"}`)
					if err != nil {
						return err
					}
					a.WantFill("openx")
				}
				return nil
			})
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

// The GOAWAY that every second request causes leaves that request out. A request that is left out
// again and again ends with the SSP's statement, and no request is processed twice.
func TestRequestsThatGoAwaysLeaveOutAreSentAtMostThreeTimes(t *testing.T) {
	t.Parallel()
	s := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.H2C, Behaviour: sspsim.Behaviour{Faults: sspsim.Faults{GoAway: sspsim.GoAway{Chance: sspsim.Every(2), Exclude: true}}}})
	ab := e2e.Start(t, e2e.Single(s.URL(), "protocol: h2c", "breaker: {enabled: false}"))
	var filled atomic.Int64
	ab.Concurrently(8, func(w *e2e.Worker) error {
		for range 50 {
			a, err := w.Exchange("POST", "/fillbuffer", `{"id":"1"}`)
			if err != nil {
				return err
			}
			if a.Status == 200 {
				filled.Add(1)
			} else if detail := e2e.ErrorOf(a).Detail; !strings.Contains(detail, "without processing the request; it was sent") || !strings.Contains(detail, "retry.max") {
				return fmt.Errorf("a request ended with %s", a.Body)
			}
		}
		return nil
	})
	if n := filled.Load(); n < 200 {
		t.Errorf("%d of 400 requests were filled", n)
	}
	e2e.WantRequests(t, s, uint64(filled.Load()))
	if n := s.Counters().Unprocessed; n > 3*400 {
		t.Errorf("the SSP refused %d requests of 400", n)
	}
}

// A POST whose stream was reset is sent again only if the reset proves that the SSP did not process it, and another
// attempt can succeed.
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
