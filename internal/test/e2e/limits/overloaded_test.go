package limits

import (
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

func TestMaxInFlightIsEnforcedWithOverloaded(t *testing.T) {
	t.Parallel()
	s := e2e.StartGated(t, sspsim.Options{})
	ab := e2e.Start(t, "server: {max_in_flight: 2}\n"+e2e.Single(s.URL()))
	var busy []*e2e.Client
	for range 2 {
		c := ab.Dial()
		c.Send(e2e.Request("GET", "/fillbuffer", ""))
		busy = append(busy, c)
	}
	e2e.AwaitInFlight(t, s.SSP, 2)
	ab.WantMetric(2, "adbuffer_in_flight_requests")
	ab.WantMetric(2, "adbuffer_in_flight_requests_limit")
	c := ab.Dial()
	ab.WantRefusal("a third", e2e.Refusal{Status: 503, Reason: "overloaded", Route: "default", Names: []string{"2 of 2", "server.max_in_flight"}},
		func() *e2e.Response { return c.Get("/fillbuffer") })
	ab.WantMetric(1, "adbuffer_limit_refused_total", "limit=max_in_flight")
	// The log names the setting without the access log.
	testsupport.Eventually(t, "the log names server.max_in_flight", func() bool {
		line, ok := ab.Log.Line("a limit of the service was reached")
		return ok && line["see"] == "server.max_in_flight" && line["times"] == 1.0 && line["pid"] == float64(ab.Cmd.Process.Pid)
	})
	s.Open()
	for _, b := range busy {
		b.Read("GET").WantFill("openx")
	}
	c.Get("/fillbuffer").WantFill("openx")
}

func TestMaxBufferedBytesLimitsRequestBodies(t *testing.T) {
	t.Parallel()
	s := e2e.StartGated(t, sspsim.Options{})
	ab := e2e.Start(t, "server: {max_buffered_bytes: 10000}\n"+e2e.Single(s.URL(), "max_buffered_bytes: 20000")) // so that the server's limit is the first one reached
	busy := ab.Dial()
	busy.Send(e2e.Request("POST", "/fillbuffer", strings.Repeat("b", 9000)))
	e2e.AwaitInFlight(t, s.SSP, 1)
	ab.WantMetric(9000, "adbuffer_buffered_bytes")
	ab.WantMetric(10000, "adbuffer_buffered_bytes_limit")
	c := ab.Dial()
	ab.WantRefusal("2000 more", e2e.Refusal{Status: 503, Reason: "overloaded", Names: []string{"9000 of 10000", "server.max_buffered_bytes"}},
		func() *e2e.Response { return c.Post("/fillbuffer", strings.Repeat("c", 2000)) })
	s.Open()
	busy.Read("POST").WantFill("openx")
	ab.AwaitMetric(0, "adbuffer_buffered_bytes")
	ab.Post("/fillbuffer", strings.Repeat("c", 2000)).WantFill("openx")
}

// A client that sends only the start of a request gets 408.
func TestARequestThatDoesNotArriveGets408(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, "server: {idle_timeout: 3s, read_timeout: 1s}\n"+e2e.Single(s.URL()))
	want := e2e.Refusal{Status: 408, Reason: "bad_request", Route: "none", Names: []string{"1s", "server.read_timeout"}}
	for _, row := range []struct{ name, raw, route string }{
		{"half a head", "GET /fillbuffer HTTP/1.1\r\nHo", "none"},
		{"half a body", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf", "default"},
	} {
		c := ab.Dial()
		want.Route = row.route
		ab.WantRefusal(row.name, want, func() *e2e.Response {
			c.Send(row.raw)
			return c.Read("POST")
		})
		c.WantClosed()
	}
	// An idle client's connection is closed without a response.
	c := ab.Dial()
	c.Get("/fillbuffer").WantFill("openx")
	c.WantClosed()
	// The same holds for a connection without any byte: it has no request.
	before := ab.Scrape().Sum("adbuffer_requests_total")
	ab.Dial().WantClosed()
	ab.Dial().Close()
	ab.AwaitMetric(0, "adbuffer_client_connections")
	testsupport.Equal(t, ab.Scrape().Sum("adbuffer_requests_total"), before, "%v requests were counted after connections without one")
}
