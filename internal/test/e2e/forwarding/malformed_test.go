package forwarding

import (
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// badHeads are requests that violate RFC 9112 or adbuffer's stricter rules. Each must get 400 and
// close its connection. Its framing is in doubt, so later bytes must not be read as a request.
var badHeads = []struct{ name, raw string }{
	{"blank in a name", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\nFoo Bar: 1\r\n\r\n"},
	{"blank after a name", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\nFoo : 1\r\n\r\n"},
	{"tab after a name", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\nFoo\t: 1\r\n\r\n"},
	{"blank after Content-Length", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nContent-Length : 1\r\n\r\nx"},
	{"blank before the first name", "GET /fillbuffer HTTP/1.1\r\n Host: a\r\n\r\n"},
	{"obs-fold", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\nX-A: 1\r\n 2\r\n\r\n"},
	{"obs-fold with a tab", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\nX-A: 1\r\n\t2\r\n\r\n"},
	{"folded Transfer-Encoding", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"},
	{"bare LF behind a field", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\nX-A: 1\nX-B: 2\r\n\r\n"},
	{"bare LF behind the last field", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\nX-A: 1\n\r\n"},
	{"bare LF behind the request line", "GET /fillbuffer HTTP/1.1\nHost: a\r\n\r\n"},
	{"bare LF everywhere", "GET /fillbuffer HTTP/1.1\nHost: a\n\n"},
	{"bare LF for the empty line", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\n\n"},
	{"bare CR in a value", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\nX-A: 1\r2\r\n\r\n"},
	{"NUL in a value", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\nX-A: 1\x002\r\n\r\n"},
	{"NUL in a name", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\nX\x00A: 1\r\n\r\n"},
	{"NUL in the target", "GET /fill\x00buffer HTTP/1.1\r\nHost: a\r\n\r\n"},
	{"control byte in a value", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\nX-A: \x01\r\n\r\n"},
	{"no colon", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\nX-A\r\n\r\n"},
	{"no name", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\n: 1\r\n\r\n"},
	{"no Host", "GET /fillbuffer HTTP/1.1\r\nX-A: 1\r\n\r\n"},
	{"no field at all", "GET /fillbuffer HTTP/1.1\r\n\r\n"},
	{"two Hosts", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"},
	{"two equal Hosts", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"},
	{"an invalid Host", "GET /fillbuffer HTTP/1.1\r\nHost: a/b@c\r\n\r\n"},
	{"Content-Length and Transfer-Encoding", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{"Transfer-Encoding and Content-Length", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"},
	{"Transfer-Encoding: identity", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\nContent-Length: 1\r\n\r\nx"},
	{"Transfer-Encoding: identity alone", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n"},
	{"Transfer-Encoding: gzip, chunked", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"},
	{"Transfer-Encoding: chunked, identity", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"},
	{"Transfer-Encoding: xchunked", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"},
	{"Transfer-Encoding: \\vchunked", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"},
	{"empty Transfer-Encoding", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n0\r\n\r\n"},
	{"two Transfer-Encodings", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{"Transfer-Encoding in HTTP/1.0", "POST /fillbuffer HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
	{"two Content-Lengths", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy"},
	{"two equal Content-Lengths", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx"},
	{"a list of Content-Lengths", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\nx"},
	{"Content-Length: +1", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx"},
	{"Content-Length: -1", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\nx"},
	{"Content-Length: 0x1", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\nx"},
	{"empty Content-Length", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\nx"},
	{"Content-Length that overflows", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551617\r\n\r\nx"},
	{"an invalid chunk size", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n0\r\n\r\n"},
	{"a chunk size of 0x1", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\nx\r\n0\r\n\r\n"},
	{"a negative chunk size", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nx\r\n0\r\n\r\n"},
	{"a chunk without its CRLF", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxx0\r\n\r\n"},
	{"a chunk size behind a bare LF", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n"},
	{"a chunk without its last chunk", "POST /fillbuffer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"},
	{"a GET with a body", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"},
	{"a GET with a chunked body", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"},
	{"HTTP/1.2", "GET /fillbuffer HTTP/1.2\r\nHost: a\r\n\r\n"},
	{"HTTP/2.0", "GET /fillbuffer HTTP/2.0\r\nHost: a\r\n\r\n"},
	{"HTTP/0.9", "GET /fillbuffer HTTP/0.9\r\nHost: a\r\n\r\n"},
	{"no version", "GET /fillbuffer\r\nHost: a\r\n\r\n"},
	{"http/1.1", "GET /fillbuffer http/1.1\r\nHost: a\r\n\r\n"},
	{"the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
	{"two blanks in the request line", "GET  /fillbuffer HTTP/1.1\r\nHost: a\r\n\r\n"},
	{"a blank in the target", "GET /fill buffer HTTP/1.1\r\nHost: a\r\n\r\n"},
	{"a tab in the target", "GET /fillbuffer?a=\t HTTP/1.1\r\nHost: a\r\n\r\n"},
	{"a fragment in the target", "GET /fillbuffer#x HTTP/1.1\r\nHost: a\r\n\r\n"},
	{"CONNECT", "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n"},
	{"authority-form", "GET a.example:443 HTTP/1.1\r\nHost: a\r\n\r\n"},
	{"asterisk-form", "GET * HTTP/1.1\r\nHost: a\r\n\r\n"},
	{"another scheme", "GET ftp://a/fillbuffer HTTP/1.1\r\nHost: a\r\n\r\n"},
	{"a relative target", "GET fillbuffer HTTP/1.1\r\nHost: a\r\n\r\n"},
}

func TestMalformedRequestsGet400AndCloseTheirConnection(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, e2e.Single(s.URL()))
	for _, bad := range badHeads {
		c := ab.Dial()
		ab.WantRefusal(bad.name, e2e.Refusal{Status: 400, Reason: "bad_request", Route: routeOf(bad.raw)}, func() *e2e.Response {
			// A server that continued to read would respond to the bytes after the malformed
			// request.
			c.Send(bad.raw + e2e.Request("GET", "/fillbuffer", ""))
			a, err := c.TryRead("GET")
			if err != nil {
				t.Fatalf("%s: %v", bad.name, err)
			}
			testsupport.Equal(t, a.Header("Connection"), "close", "%[2]s: Connection: %[1]q", bad.name)
			return a
		})
		c.WantClosed()
		c.Close()
	}
	e2e.WantRequests(t, s, 0)
}

// routeOf returns the label route of a bad request. Bodies are read after the route is chosen.
func routeOf(raw string) string {
	if strings.HasPrefix(raw, "POST ") && strings.Contains(raw, "Transfer-Encoding: chunked\r\n\r\n") && !strings.Contains(raw, "chunked\r\n\r\n0\r\n") {
		return "default"
	}
	return "none"
}

func TestOtherMethodsGet405WithAllow(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, e2e.Single(s.URL()))
	c := ab.Dial()
	for _, method := range []string{"PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "get", "PROPFIND", "X"} {
		want := e2e.Refusal{Status: 405, Reason: "method_not_allowed", Route: "none"}
		a := ab.WantRefusal(method, want, func() *e2e.Response { return c.Do(method, "/fillbuffer", "") })
		testsupport.Equal(t, a.Header("Allow"), "GET, HEAD, POST", "%[2]s: Allow: %[1]q", method)
	}
	c.Get("/fillbuffer").WantFill("openx") // the connection is still good
	e2e.WantRequests(t, s, 1)
}
