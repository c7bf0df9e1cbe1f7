package forwarding

import (
	"fmt"
	"strings"
	"testing"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
)

func TestErrorsThatLeaveFramingIntactKeepTheConnection(t *testing.T) {
	t.Parallel()
	good, bad := e2e.Healthy(t), e2e.Failing(t, sspsim.Faults{Reset: sspsim.Always})
	ab := e2e.Start(t, fmt.Sprintf(`
ssps:
  - {name: good, endpoints: [%q]}
  - {name: bad, endpoints: [%q], qps: {limit: 1000, burst: 1000}}
routes:
  - {name: default, match: {path: /fillbuffer}, ssps: [good, bad], client_choice: true}
`, good.URL(), bad.URL()))
	c := ab.Dial()
	body := strings.Repeat("GET / HTTP/1.1\n", 3000) // no line of the body is a request line
	for _, row := range []struct {
		method, target, body string
		fields               []string
		status               int
	}{
		{"GET", "/nowhere", "", nil, 404},
		{"POST", "/nowhere", body, nil, 404}, // adbuffer reads its body and discards it
		{"PUT", "/fillbuffer", body, nil, 405},
		{"POST", "/fillbuffer/unknown", body, nil, 404},
		{"POST", "/fillbuffer", body, []string{"X-Adbuffer-Timeout-Ms: x"}, 400},
		{"POST", "/fillbuffer", body, []string{"X-Adbuffer-Timeout-Ms: 1"}, 504},
		{"POST", "/fillbuffer/bad", body, nil, 502},
		{"GET", "/fillbuffer/bad", "", nil, 502},
		{"HEAD", "/nowhere", "", nil, 404},
	} {
		a := c.Do(row.method, row.target, row.body, row.fields...).WantStatus(row.method+" "+row.target, row.status)
		if got := a.Header("Connection"); got != "" {
			t.Errorf("%s %s: Connection: %s", row.method, row.target, got)
		}
		c.Post("/fillbuffer", body).WantFill("good")
	}
}

func TestHTTP10ClientsMayKeepTheirConnection(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, e2e.Single(s.URL()))
	c := ab.Dial()
	for range 2 {
		c.Send("GET /fillbuffer?a=1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
		if got := c.Read("GET").WantFill("openx").Header("Connection"); !strings.EqualFold(got, "keep-alive") {
			t.Errorf("Connection: %q, want keep-alive", got)
		}
	}
	c.Send("GET /fillbuffer?a=1 HTTP/1.0\r\n\r\n")
	c.Read("GET").WantFill("openx")
	c.WantClosed()
	if got := e2e.LastRequest(t, s); got.Protocol != "HTTP/1.1" || got.Get("Host") != s.Addr() {
		t.Errorf("the SSP got %s with %v", got.Protocol, got.Header)
	}
}

func TestConnectionCloseIsObeyed(t *testing.T) {
	t.Parallel()
	ab := e2e.Start(t, e2e.Single(e2e.Healthy(t).URL()))
	c := ab.Dial()
	if got := c.Get("/fillbuffer", "Connection: close").WantFill("openx").Header("Connection"); got != "close" {
		t.Errorf("Connection: %q, want close", got)
	}
	c.WantClosed()
}
