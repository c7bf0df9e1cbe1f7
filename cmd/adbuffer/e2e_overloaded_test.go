package main

import (
	"strings"
	"testing"
	"time"

	"adbuffer/internal/sspsim"
)

func TestMaxInFlightIsEnforcedWithOverloaded(t *testing.T) {
	t.Parallel()
	s := startGated(t, sspsim.Options{})
	ab := start(t, "server: {max_in_flight: 2}\n"+single(s.URL()))
	var busy []*client
	for range 2 {
		c := ab.dial()
		c.send(request("GET", "/fillbuffer", ""))
		busy = append(busy, c)
	}
	awaitInFlight(t, s.SSP, 2)
	ab.wantMetric(2, "adbuffer_in_flight_requests")
	ab.wantMetric(2, "adbuffer_in_flight_requests_limit")
	c := ab.dial()
	ab.wantRefusal("a third", refusal{status: 503, reason: "overloaded", route: "default", names: []string{"2 of 2", "server.max_in_flight"}},
		func() *answer { return c.get("/fillbuffer") })
	s.open()
	for _, b := range busy {
		b.read("GET").wantFill("openx")
	}
	c.get("/fillbuffer").wantFill("openx")
}

func TestAnSSPsMaxInFlightIsEnforcedWithOverloadedThatNamesIt(t *testing.T) {
	t.Parallel()
	s := startGated(t, sspsim.Options{})
	ab := start(t, single(s.URL(), "max_in_flight: 1"))
	busy := ab.dial()
	busy.send(request("GET", "/fillbuffer", ""))
	awaitInFlight(t, s.SSP, 1)
	c := ab.dial()
	ab.wantRefusal("a second", refusal{status: 503, reason: "overloaded", ssp: "openx", names: []string{"1 of 1", "max_in_flight"}},
		func() *answer { return c.get("/fillbuffer") })
	s.open()
	busy.read("GET").wantFill("openx")
	c.get("/fillbuffer").wantFill("openx")
	wantAsked(t, s.SSP, 2)
}

func TestConnectionsOverTheLimitAreToldSo(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	ab := start(t, "server: {max_connections: 2}\n"+single(s.URL()))
	a, b := ab.dial(), ab.dial()
	a.get("/fillbuffer").wantFill("openx")
	b.get("/fillbuffer").wantFill("openx")
	ab.wantMetric(2, "adbuffer_client_connections")
	ab.wantMetric(2, "adbuffer_client_connections_limit")
	var c *client
	refused := ab.wantRefusal("a third", refusal{status: 503, reason: "overloaded", route: "none", names: []string{"2 of 2", "server.max_connections"}},
		func() *answer { c = ab.dial(); return c.get("/fillbuffer") })
	if got := refused.header("Connection"); got != "close" {
		t.Errorf("Connection: %q, want close", got)
	}
	c.wantClosed()
	a.get("/fillbuffer").wantFill("openx")
	b.close()
	ab.awaitMetric(1, "adbuffer_client_connections")
	ab.get("/fillbuffer").wantFill("openx")
}

func TestMaxBufferedBytesBoundsRequestBodies(t *testing.T) {
	t.Parallel()
	s := startGated(t, sspsim.Options{})
	ab := start(t, "server: {max_buffered_bytes: 10000}\n"+single(s.URL()))
	busy := ab.dial()
	busy.send(request("POST", "/fillbuffer", strings.Repeat("b", 9000)))
	awaitInFlight(t, s.SSP, 1)
	ab.wantMetric(9000, "adbuffer_buffered_bytes")
	ab.wantMetric(10000, "adbuffer_buffered_bytes_limit")
	c := ab.dial()
	ab.wantRefusal("2000 more", refusal{status: 503, reason: "overloaded", names: []string{"9000 of 10000", "server.max_buffered_bytes"}},
		func() *answer { return c.post("/fillbuffer", strings.Repeat("c", 2000)) })
	s.open()
	busy.read("POST").wantFill("openx")
	ab.awaitMetric(0, "adbuffer_buffered_bytes")
	ab.post("/fillbuffer", strings.Repeat("c", 2000)).wantFill("openx")
}

func TestMaxBufferedBytesBoundsAnswers(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"http1", "http1-pipelined", "http2"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			o := sspsim.Options{Behaviour: sspsim.Behaviour{Answer: sspsim.Answer{Kind: sspsim.Raw, Size: sspsim.Size{Constant: 20000}}}}
			settings := []string{"max_buffered_bytes: 20000"} // so that the server's limit is met
			if protocol == "http2" {
				o.Protocol = sspsim.TLSAuto
			}
			s := startSSP(t, o)
			if protocol == "http2" {
				settings = append(settings, "tls: {ca_file: "+caFile(t, s)+"}")
			}
			ab := start(t, "server: {max_buffered_bytes: 10000}\n"+single(s.URL(), append(settings, "protocol: "+protocol)...))
			c := ab.dial()
			ab.wantRefusal("an answer of 20000 bytes", refusal{status: 503, reason: "overloaded", ssp: "openx", names: []string{"server.max_buffered_bytes"}},
				func() *answer { return c.get("/fillbuffer") })
			if err := s.Set(sspsim.Behaviour{Answer: sspsim.Answer{Kind: sspsim.Raw, Size: sspsim.Size{Constant: 8000}}}); err != nil {
				t.Fatal(err)
			}
			if a := c.get("/fillbuffer").wantFill("openx"); len(a.body) != 8000 {
				t.Errorf("an answer of %d bytes, want 8000", len(a.body))
			}
		})
	}
}

// A client that sends the start of a request and no more is given up.
func TestARequestThatDoesNotComeIsGivenUp(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	ab := start(t, "server: {read_timeout: 100ms, idle_timeout: 3s}\n"+single(s.URL()))
	want := refusal{status: 408, reason: "bad_request", route: "none", names: []string{"100ms", "server.read_timeout"}}
	for _, row := range []struct{ name, raw, route string }{
		{"half a head", "GET /fillbuffer HTTP/1.1\r\nHo", "none"},
		{"half a body", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf", "default"},
		{"half a chunk", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nha", "default"},
	} {
		c := ab.dial()
		want.route = row.route
		ab.wantRefusal(row.name, want, func() *answer {
			c.send(row.raw)
			return c.read("POST")
		})
		c.wantClosed()
	}
	// One byte at a time is no way to make it last.
	c := ab.dial()
	want.route = "none"
	ab.wantRefusal("a byte at a time", want, func() *answer {
		for i := 0; i < 20; i++ {
			if _, err := c.c.Write([]byte("GET /fillbuffer HTTP/1.1\r\n")[i : i+1]); err != nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		return c.read("GET")
	})
	// And one that is idle is closed without a word.
	c = ab.dial()
	c.get("/fillbuffer").wantFill("openx")
	c.wantClosed()
	// So is one that never sent anything: it made no request.
	before := ab.scrape().sum("adbuffer_requests_total")
	ab.dial().wantClosed()
	ab.dial().close()
	ab.awaitMetric(0, "adbuffer_client_connections")
	if after := ab.scrape().sum("adbuffer_requests_total"); after != before {
		t.Errorf("connections without a request counted as %v requests", after-before)
	}
}

// Legs count as well: of a request to three SSPs, two legs fit beside it.
func TestMaxInFlightCountsTheLegsOfFanOuts(t *testing.T) {
	t.Parallel()
	s := startGated(t, sspsim.Options{})
	ab := start(t, sprintf(`
server: {max_in_flight: 3}
ssps:
  - {name: a, endpoints: [%[1]q]}
  - {name: b, endpoints: [%[1]q]}
  - {name: c, endpoints: [%[1]q]}
routes:
  - {name: default, match: {path: /fillbuffer}, mode: parallel-all, ssps: [a, b, c]}
`, s.URL()))
	c := ab.dial()
	c.send(request("GET", "/fillbuffer", ""))
	awaitInFlight(t, s.SSP, 2)
	ab.wantMetric(3, "adbuffer_in_flight_requests")
	s.open()
	refused := 0
	for _, r := range envelopeOf(c.read("GET")).Results {
		if r.Error == "overloaded" {
			refused++
		} else if r.Status != 200 {
			t.Errorf("%s: %+v", r.SSP, r)
		}
	}
	if refused != 1 {
		t.Errorf("%d legs were overloaded, want 1", refused)
	}
}
