package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestHeadsAndBodiesOverTheirLimitsAreRefusedAndEndTheirConnection(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	ab := start(t, "server: {max_header_bytes: 1024, max_body_bytes: 2000}\n"+single(s.URL()))
	head := []string{"1024", "server.max_header_bytes"}
	body := []string{"2000", "server.max_body_bytes"}
	for _, row := range []struct {
		name   string
		raw    string
		status int
		route  string
		names  []string
	}{
		{"one long field", request("GET", "/fillbuffer", "", "X-Long: "+strings.Repeat("x", 1100)), 431, "none", head},
		{"many fields", request("GET", "/fillbuffer", "", strings.Repeat("X-A: 1234567890\r\n", 100)+"X: 1"), 431, "none", head},
		{"a long target", request("GET", "/fillbuffer?"+strings.Repeat("x", 1100), ""), 431, "none", head},
		{"a head that never ends", "GET /fillbuffer HTTP/1.1\r\nHost: " + strings.Repeat("h", 5000), 431, "none", head},
		{"more fields than anybody needs", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("A:\r\n", 200) + "\r\n", 431, "none", []string{"128"}},
		{"Content-Length over the limit", request("POST", "/fillbuffer", strings.Repeat("b", 2001)), 413, "default", body},
		{"Content-Length far over the limit", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\nb", 413, "default", body},
		{"chunks over the limit", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" +
			strings.Repeat("64\r\n"+strings.Repeat("c", 100)+"\r\n", 21) + "0\r\n\r\n", 413, "default", body},
		{"one chunk over the limit", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n7d1\r\n" + strings.Repeat("c", 2001) + "\r\n0\r\n\r\n", 413, "default", body},
	} {
		c := ab.dial()
		ab.wantRefusal(row.name, refusal{status: row.status, reason: "too_large", route: row.route, names: row.names}, func() *answer {
			c.send(row.raw)
			return c.read("POST")
		})
		c.wantClosed()
		c.close()
	}
	wantAsked(t, s, 0)
	c := ab.dial()
	for _, n := range []int{1, 1999, 2000} {
		c.post("/fillbuffer", strings.Repeat("b", n)).wantFill("openx")
		c.send(fmt.Sprintf("POST /fillbuffer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", n, strings.Repeat("c", n)))
		c.read("POST").wantFill("openx")
	}
	wantAsked(t, s, 6)
}

func TestAClientThatAsksFirstIsToldThatItsBodyIsTooLarge(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	ab := start(t, "server: {max_body_bytes: 2000}\n"+single(s.URL()))
	const head = "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
	c := ab.dial()
	ab.wantRefusal("Expect", refusal{status: 413, reason: "too_large", route: "none", names: []string{"server.max_body_bytes"}}, func() *answer {
		c.send(fmt.Sprintf(head, 2001))
		return c.read("POST")
	})
	c.wantClosed()

	c = ab.dial()
	c.send(fmt.Sprintf(head, 5))
	c.read("POST").wantStatus("interim answer", 100)
	c.send("hello")
	c.read("POST").wantFill("openx")
	if got := lastRequest(t, s); string(got.Body) != "hello" || got.Get("Expect") != "" {
		t.Errorf("the SSP was sent %q with %v", got.Body, got.Header)
	}
	c.get("/fillbuffer").wantFill("openx")
}
