package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

// rawClient is an HTTP/1 client that sends any bytes.
type rawClient struct {
	*net.TCPConn
	t  testing.TB
	in *bufio.Reader
}

func (m *modeProxy) dialRaw() *rawClient {
	m.t.Helper()
	nc := m.dial()
	return &rawClient{nc.(*net.TCPConn), m.t, bufio.NewReader(nc)}
}

// send writes parts, with pause between them.
func (c *rawClient) send(pause time.Duration, parts ...string) {
	c.t.Helper()
	for i, part := range parts {
		if i > 0 {
			time.Sleep(pause)
		}
		send(c.t, c, part)
	}
}

// response reads one response to a request of method, with its body.
func (c *rawClient) response(method string) (*http.Response, string) {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(testsupport.Patience))
	res, err := http.ReadResponse(c.in, &http.Request{Method: method})
	testsupport.MustTrue(c.t, err == nil, "no response: %v", err)
	body, err := io.ReadAll(res.Body)
	testsupport.MustTrue(c.t, err == nil, "the response's body ended after %d bytes: %v", len(body), err)
	return res, string(body)
}

// wants reads responses with these status codes.
func (c *rawClient) wants(statuses ...int) {
	c.t.Helper()
	for i, want := range statuses {
		res, body := c.response("GET")
		testsupport.MustTrue(c.t, res.StatusCode == want, "response %d: %d %s, want %d", i, res.StatusCode, body, want)
	}
}

// wantEnd checks that the proxy closes the connection, and sends no more bytes.
func (c *rawClient) wantEnd() {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(testsupport.Patience))
	b, err := io.ReadAll(c.in)
	testsupport.MustTrue(c.t, len(b) == 0 && !isTimeout(err), "the connection stays open: %q, %v", b, err)
}

func echoes(name string) bidder {
	return bidder{name: name, handler: func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		fmt.Fprintf(w, "%s %q", r.Method, body)
	}}
}

// A head with bare LFs is refused at once, and not at the end of read_timeout, which is a minute
// here.
func TestHeadOfBareLFsIsRefusedAtOnce(t *testing.T) {
	m := newModeProxy(t, route.Single, nil, bids("a", "{}"))
	for _, before := range []string{"", getFill, "\r\n"} {
		for _, head := range []string{"GET /fill HTTP/1.1\nHost: a\n\n", "GET /fill HTTP/1.1\n", "\n", "PUT /fill HTTP/1.1\nHost: a\n\n", "GET /fill HTTP/1.1\r\nHost: a\n"} {
			c := m.dialRaw()
			c.send(0, before+head)
			if before == getFill {
				c.wants(200)
			}
			c.wants(400)
			c.wantEnd()
		}
	}
}

// refusedWhileSending sends a head that is refused, and continues to send a body after the response.
// Its connection must not be reset, since its kernel might then discard the response. nth counts the
// requests that were refused.
func (m *modeProxy) refusedWhileSending(head string, nth int) {
	m.t.Helper()
	c := m.dialRaw()
	c.send(0, head+"\r\n\r\n")
	for m.seriesOf("adbuffer_requests_total", "bad_request", "none") < float64(nth) { // the response is read at the end
		time.Sleep(time.Millisecond)
	}
	for range 3 { // the server's lingering bounds the time of these writes
		time.Sleep(5 * time.Millisecond)
		c.send(0, strings.Repeat("a", 1000))
	}
	c.wants(400)
	c.wantEnd()
}

func TestRefusedHeadGetsAResponseThoughItsClientContinuesToSend(t *testing.T) {
	const head = "POST /fill HTTP/1.1\r\nHost: a\r\nContent-Length: 100000"
	m := newModeProxy(t, route.Single, nil, echoes("a"))
	for i, field := range []string{"X Y: z", "Transfer-Encoding: chunked", "X-A: 1\r\n 2"} {
		m.refusedWhileSending(head+"\r\n"+field, i+1)
	}
	m = newModeProxy(t, route.Single, overTLSAnd(func(*proxy.Options) {}), echoes("a"))
	m.refusedWhileSending(head, 1) // in cleartext
}

func TestTrailerOverTheLimitNamesTheSetting(t *testing.T) {
	m := newModeProxy(t, route.Single, nil, echoes("a"))
	for size, status := range map[int]int{16 << 9: 200, 16 << 10: 400} {
		c := m.dialRaw()
		c.send(0, "POST /fill HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-A: "+strings.Repeat("a", size)+"\r\n\r\n")
		res, body := c.response("POST")
		if res.StatusCode != status || status == 400 && !strings.Contains(body, "server.max_header_bytes") {
			t.Errorf("a trailer of %d bytes: %d %s, want %d", size, res.StatusCode, body, status)
		}
	}
}

// A client that waits for a 100 gets one, in any spelling of the field's name. It gets none if it
// has sent its body or is refused.
func TestClientThatExpectsA100IsSentIt(t *testing.T) {
	m := newModeProxy(t, route.Single, nil, echoes("a"))
	for _, name := range []string{"Expect", "expect", "EXPECT"} {
		head := "POST /fill HTTP/1.1\r\nHost: a\r\n" + name + ": 100-Continue\r\nContent-Length: 2\r\n\r\n"
		for range 2 {
			c := m.dialRaw()
			c.send(0, head)
			c.wants(100)
			c.send(0, "ab")
			res, body := c.response("POST")
			testsupport.True(t, res.StatusCode == 200 && body == `POST "ab"`, "%s: %d %s", name, res.StatusCode, body)
		}
		c := m.dialRaw()
		c.send(0, strings.Replace(head, "Length: 2", "Length: 1000000", 1))
		c.wants(413)
		c.wantEnd()
	}
}

// A chunk of any size over the limit is 413. Read with 64 bits, the last three sizes are one byte.
func TestChunksOverTheLimitAre413(t *testing.T) {
	m := newModeProxy(t, route.Single, nil, echoes("a"))
	for _, size := range []string{"40001", "40000000", "40000001", "7fffffff", "fffffffffffffff", "10000000000000001", "f0000000000000001", "100000000000000000000000000000001"} {
		c := m.dialRaw()
		c.send(0, "POST /fill HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"+size+"\r\nx\r\n0\r\n\r\n"+getFill)
		c.wants(413)
		c.wantEnd()
	}
}

// The errors of SSPs and routes, and health checks, leave the connection usable, though the request has a body.
func TestErrorsKeepTheConnection(t *testing.T) {
	m := newModeProxy(t, route.Single, func(o *proxy.Options, _ *route.Route) { o.HealthPath = "/healthy" },
		bids("a", "{}"), bidder{name: "dead", addr: "127.0.0.1:1"}, neverResponds("slow"))
	c := m.dialRaw()
	for start, status := range map[string]int{
		"POST /fill/dead HTTP/1.1": 502, "POST /fill/slow HTTP/1.1\r\nX-Adbuffer-Timeout-Ms: 30": 504, "POST /fill HTTP/1.1\r\nX-Adbuffer-Timeout-Ms: x": 400,
		"POST /fill/unknown HTTP/1.1": 404, "POST /nowhere HTTP/1.1": 404, "PUT /fill HTTP/1.1": 405,
		"POST /healthy HTTP/1.1": 200,
	} {
		c.send(0, start+"\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"+getFill)
		c.wants(status, 200)
	}
}

// A client that waits for a 100 is refused without one. Its connection closes, since only the
// client knows whether the body follows.
func TestClientThatExpectsA100IsRefusedWithoutOne(t *testing.T) {
	m := newModeProxy(t, route.Single, nil, echoes("a"))
	for line, status := range map[string]int{"POST /nowhere": 404, "PUT /fill": 405, "POST /fill#": 400} {
		c := m.dialRaw()
		c.send(0, line+" HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
		c.wants(status)
		c.wantEnd()
	}
	m = newModeProxy(t, route.Single, func(o *proxy.Options, _ *route.Route) { o.MaxBufferedBytes = 1000 }, echoes("a"))
	c := m.dialRaw() // its body has no room
	c.send(0, "POST /fill HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2000\r\n\r\n")
	c.wants(503)
	c.wantEnd()
}
