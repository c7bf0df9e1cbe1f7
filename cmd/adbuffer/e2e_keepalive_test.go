package main

import (
	"strings"
	"testing"
	"time"

	"adbuffer/internal/sspsim"
)

func TestErrorsThatLeaveFramingIntactKeepTheConnection(t *testing.T) {
	t.Parallel()
	good, bad := healthy(t), failing(t, sspsim.Faults{Reset: sspsim.Always})
	ab := start(t, sprintf(`
ssps:
  - {name: good, endpoints: [%q]}
  - {name: bad, endpoints: [%q], qps: {limit: 1000, burst: 1000}}
routes:
  - {name: default, match: {path: /fillbuffer}, ssps: [good, bad], client_choice: true}
`, good.URL(), bad.URL()))
	c := ab.dial()
	body := strings.Repeat("GET / HTTP/1.1\n", 3000) // is no request line
	for _, row := range []struct {
		method, target, body string
		fields               []string
		status               int
	}{
		{"GET", "/nowhere", "", nil, 404},
		{"POST", "/nowhere", body, nil, 404}, // its body is read past
		{"PUT", "/fillbuffer", body, nil, 405},
		{"POST", "/fillbuffer/nobody", body, nil, 404},
		{"POST", "/fillbuffer", body, []string{"X-Adbuffer-Timeout-Ms: x"}, 400},
		{"POST", "/fillbuffer", body, []string{"X-Adbuffer-Timeout-Ms: 1"}, 504},
		{"POST", "/fillbuffer/bad", body, nil, 502},
		{"GET", "/fillbuffer/bad", "", nil, 502},
		{"HEAD", "/nowhere", "", nil, 404},
	} {
		a := c.do(row.method, row.target, row.body, row.fields...).wantStatus(row.method+" "+row.target, row.status)
		if got := a.header("Connection"); got != "" {
			t.Errorf("%s %s: Connection: %s", row.method, row.target, got)
		}
		c.post("/fillbuffer", body).wantFill("good")
	}
}

func TestHTTP10ClientsAreServedAndKeptWhereTheyAsk(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	ab := start(t, single(s.URL()))
	c := ab.dial()
	for range 2 {
		c.send("GET /fillbuffer?a=1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
		if got := c.read("GET").wantFill("openx").header("Connection"); !strings.EqualFold(got, "keep-alive") {
			t.Errorf("Connection: %q, want keep-alive", got)
		}
	}
	c.send("GET /fillbuffer?a=1 HTTP/1.0\r\n\r\n")
	c.read("GET").wantFill("openx")
	c.wantClosed()
	if got := lastRequest(t, s); got.Protocol != "HTTP/1.1" || got.Get("Host") != s.Addr() {
		t.Errorf("the SSP was sent %s with %v", got.Protocol, got.Header)
	}
}

func TestConnectionCloseIsObeyed(t *testing.T) {
	t.Parallel()
	ab := start(t, single(healthy(t).URL()))
	c := ab.dial()
	if got := c.get("/fillbuffer", "Connection: close").wantFill("openx").header("Connection"); got != "close" {
		t.Errorf("Connection: %q, want close", got)
	}
	c.wantClosed()
}

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	t.Parallel()
	s := sspWith(t, sspsim.Behaviour{Answer: sspsim.Answer{Echo: true}, Latency: sspsim.Lognormal(time.Millisecond, 20*time.Millisecond)})
	ab := start(t, single(s.URL()))
	c := ab.dial()
	const n = 40
	var all strings.Builder
	for i := range n {
		if i%3 == 0 {
			all.WriteString(request("POST", sprintf("/fillbuffer?cb=%d", i), strings.Repeat("x", i*10+1)))
		} else {
			all.WriteString(request("GET", sprintf("/fillbuffer?cb=%d", i), ""))
		}
	}
	go c.c.Write([]byte(all.String())) //nolint:errcheck // the reads tell
	for i := range n {
		if got := c.read("GET").wantFill("openx").header("X-Echo-Cb"); got != sprintf("%d", i) {
			t.Fatalf("answer %d is that to request %s", i, got)
		}
	}
}

// Requests come in any pieces.
func TestARequestInPiecesIsOneRequest(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	ab := start(t, single(s.URL()))
	c := ab.dial()
	raw := "POST /fillbuffer?a=1 HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nContent-Length: 5\r\n\r\nhello"
	for cut := 1; cut < len(raw); cut += 3 {
		c.send(raw[:cut])
		time.Sleep(time.Millisecond) // so that the pieces arrive one by one
		c.send(raw[cut:])
		c.read("POST").wantFill("openx")
		if got := lastRequest(t, s); string(got.Body) != "hello" || got.Get("X-A") != "1" {
			t.Fatalf("cut at %d: the SSP was sent %q with %v", cut, got.Body, got.Header)
		}
	}
}
