package forwarding

import (
	"fmt"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
)

func TestHeadsAndBodiesOverTheirLimitsAreRefusedAndEndTheirConnection(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, "server: {max_header_bytes: 1024, max_body_bytes: 2000}\n"+e2e.Single(s.URL()))
	head := []string{"1024", "server.max_header_bytes"}
	body := []string{"2000", "server.max_body_bytes"}
	for _, row := range []struct {
		name   string
		raw    string
		status int
		route  string
		names  []string
	}{
		{"one long field", e2e.Request("GET", "/fillbuffer", "", "X-Long: "+strings.Repeat("x", 1100)), 431, "none", head},
		{"many fields", e2e.Request("GET", "/fillbuffer", "", strings.Repeat("X-A: 1234567890\r\n", 100)+"X: 1"), 431, "none", head},
		{"a long target", e2e.Request("GET", "/fillbuffer?"+strings.Repeat("x", 1100), ""), 431, "none", head},
		{"a head that never ends", "GET /fillbuffer HTTP/1.1\r\nHost: " + strings.Repeat("h", 5000), 431, "none", head},
		{"201 fields", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("A:\r\n", 200) + "\r\n", 431, "none", []string{"128"}},
		{"Content-Length over the limit", e2e.Request("POST", "/fillbuffer", strings.Repeat("b", 2001)), 413, "default", body},
		{"Content-Length far over the limit", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\nb", 413, "default", body},
		{"chunks over the limit", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" +
			strings.Repeat("64\r\n"+strings.Repeat("c", 100)+"\r\n", 21) + "0\r\n\r\n", 413, "default", body},
		{"one chunk over the limit", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n7d1\r\n" + strings.Repeat("c", 2001) + "\r\n0\r\n\r\n", 413, "default", body},
	} {
		c := ab.Dial()
		ab.WantRefusal(row.name, e2e.Refusal{Status: row.status, Reason: "too_large", Route: row.route, Names: row.names}, func() *e2e.Response {
			c.Send(row.raw)
			return c.Read("POST")
		})
		c.WantClosed()
		c.Close()
	}
	e2e.WantRequests(t, s, 0)
	c := ab.Dial()
	for _, n := range []int{1, 1999, 2000} {
		c.Post("/fillbuffer", strings.Repeat("b", n)).WantFill("openx")
		c.Send(fmt.Sprintf("POST /fillbuffer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", n, strings.Repeat("c", n)))
		c.Read("POST").WantFill("openx")
	}
	e2e.WantRequests(t, s, 6)
}
