package proxy_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/logs"
)

// wantProto2 fails unless a response came over HTTP/2, without fields of HTTP/1's
// connections.
func wantProto2(t *testing.T, res *http.Response) {
	t.Helper()
	testsupport.True(t, res.ProtoMajor == 2, "the response came over %s", res.Proto)
	for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade", "Trailer"} {
		v, ok := res.Header[name]
		testsupport.True(t, !ok, "the response has %s: %v", name, v)
	}
}

// The length of an absent body, and repeated fields, are forwarded as over HTTP/1.
func TestResponseFieldsCrossUnchangedOverHTTP2(t *testing.T) {
	head := "ETag: \"a\"\r\nset-cookie: a=1; Path=/\r\nSet-Cookie: b=2\r\nServer: s\r\nX-Empty:\r\nConnection: X-Hop\r\nX-Hop: 1\r\nX-Adbuffer-Source: forged\r\nContent-Length: 17\r\n\r\n"
	for _, row := range []struct {
		method, status, body string
		length               []string
	}{
		{"GET", "304 Not Modified", "", nil}, // which may have a Content-Length, but the HTTP/2 server sends none
		{"HEAD", "200 OK", "", []string{"17"}},
		{"GET", "200 OK", "0123456789abcdefg", []string{"17"}},
		{"GET", "302 Found", "0123456789abcdefg", []string{"17"}},
		{"GET", "404 Not Found", "0123456789abcdefg", []string{"17"}},
	} {
		l := respondingRaw(t, "HTTP/1.1 "+row.status+"\r\n"+head+row.body)
		m := newModeProxy(t, route.Single, overTLS, bidder{name: "a", addr: l.Addr().String()})
		res, body := m.ask(m.client(true), row.method, "/fill", "")
		wantProto2(t, res)
		res.Header.Del("Date")
		testsupport.True(t, uuidv7.MatchString(idOf(t, res)), "the response has the id %s", idOf(t, res))
		res.Header.Del("X-Request-Id")
		want := http.Header{
			"Etag": {`"a"`}, "Set-Cookie": {"a=1; Path=/", "b=2"}, "Server": {"s"}, "X-Empty": {""},
			"X-Adbuffer-Source": {"ssp/a"},
		}
		if row.length != nil {
			want["Content-Length"] = row.length
		}
		if res.Status[:3] != row.status[:3] || body != row.body || !maps.EqualFunc(res.Header, want, slices.Equal) {
			t.Errorf("%s %s: %s %v %q, want %v", row.method, row.status, res.Status, res.Header, body, want)
		}
	}
}

// Requests that were sent get a response, and the client gets GOAWAY.
func TestDrainLosesNoStream(t *testing.T) {
	received, respond := make(chan struct{}, 100), make(chan struct{})
	m := newModeProxy(t, route.Single, overTLS, bidder{name: "a", handler: func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "" {
			received <- struct{}{}
			<-respond
		}
		io.WriteString(w, "{}")
	}})
	busy, idle := m.client(true), m.client(true)
	m.ask(idle, "GET", "/fill", "")
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			res, body := m.ask(busy, "POST", fmt.Sprintf("/fill?%d", i), "0123456789")
			m.want(res, 200, "ssp/a")
			testsupport.Equal(t, body, "{}", "body %s")
		})
	}
	for range 50 {
		<-received
	}
	drained := make(chan int)
	go func() { drained <- m.p.Drain(context.Background()) }()
	m.await(1, openClients, "") // the idle connection is closed
	testsupport.Equal(t, m.p.InFlight(), 50, "%d in flight")
	close(respond)
	wg.Wait()
	testsupport.Equal(t, <-drained, 0, "%d streams were cut")
	m.await(0, openClients, "")
}

// Before the service stops accepting connections, a response brings a GOAWAY with it. The next
// request uses a new connection.
func TestResponsesOfADrainingServiceBringGOAWAY(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLS, bids("a", "{}"))
	c := m.client(true)
	m.p.BeginDrain()
	for range 3 {
		res, _ := m.ask(c, "POST", "/fill", "x")
		m.want(res, 200, "ssp/a")
		wantProto2(t, res)
	}
	// There are more connections if the client begins a request before it has read the GOAWAY.
	testsupport.AtLeast(t, m.series(handshakes, "1.3"), 3, "%v connections for three requests")
}

// When a Drain times out, it cuts streams, counts them, and leaves no resource in use.
func TestDrainThatEndsEarlyCutsStreams(t *testing.T) {
	received, respond := make(chan struct{}, 1), make(chan struct{})
	m := newModeProxy(t, route.Single, overTLS, bidder{name: "a", handler: func(http.ResponseWriter, *http.Request) {
		received <- struct{}{}
		<-respond
	}})
	failed := make(chan error)
	go func() {
		req, _ := http.NewRequestWithContext(t.Context(), "POST", m.https("/fill"), nil)
		res, err := m.client(true).Do(req)
		if err == nil {
			err = fmt.Errorf("status %d", res.StatusCode)
			res.Body.Close()
		}
		failed <- err
	}()
	<-received
	now, cancel := context.WithCancel(context.Background())
	cancel()
	testsupport.Equal(t, m.p.Drain(now), 1, "%d cut")
	err := <-failed
	testsupport.True(t, err != nil && !strings.HasPrefix(err.Error(), "status"), "the client saw %v", err)
	close(respond)
	m.await(0, inFlight, "")
	m.await(0, openClients, "")
}

func h2c(o *proxy.Options, _ *route.Route) { o.H2C = true }

// The preface has a meaning only at the start of a connection. It may arrive in any pieces.
func TestPrefaceMustBeAtTheStart(t *testing.T) {
	m := newModeProxy(t, route.Single, h2c, bids("a", "{}"))
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	for cut := 1; cut < len(preface); cut += 5 {
		c := m.dial()
		io.WriteString(c, preface[:cut])
		time.Sleep(5 * time.Millisecond) // so that the proxy reads it separately
		io.WriteString(c, preface[cut:])
		var frame [9]byte
		_, err := io.ReadFull(c, frame[:])
		testsupport.True(t, err == nil && frame[3] == 4, "cut at %d: got % x, %v, want SETTINGS", cut, frame, err)
		c.Close()
	}
	for _, first := range []string{"GET /fill HTTP/1.1\r\nHost: a\r\n\r\n", "\r\n"} {
		c := m.dial()
		io.WriteString(c, first+preface)
		b, _ := io.ReadAll(c)
		testsupport.True(t, strings.Contains(string(b), "HTTP/1.1 400 "), "behind %q: %q", first, b)
		c.Close()
	}
}

// A stream beyond server.max_streams_per_conn is refused, which is a failure of adbuffer: it is counted, and logged for
// any sample. A request whose stream was reset still counts until its SSP has responded.
func TestStreamsThatWereResetCountUntilTheyAreServed(t *testing.T) {
	received, release := make(chan struct{}, 10), make(chan struct{})
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) {
		o.MaxStreams, o.Access = 3, logs.AccessOptions{Enabled: true, Failures: true}
	}),
		bidder{name: "a", handler: func(http.ResponseWriter, *http.Request) { received <- struct{}{}; <-release }})
	f := m.frames(t)
	for _, id := range []uint32{1, 3, 5} {
		f.request(id, true, "x-adbuffer-timeout-ms", "60000")
		<-received
	}
	f.request(7, true)
	a := f.responseTo(7)
	testsupport.True(t, a.reset, "the fourth stream: %+v, want a reset", a)
	testsupport.Equal(t, m.seriesOf("adbuffer_requests_total", "overloaded", "none"), 1, "%v requests are counted")
	wantFields(t, m.onlyLine(t), map[string]any{
		"route": "none", "outcome": "overloaded", "status": int64(0), "logged_for": "failure",
		"error": "3 of 3 streams of the client's connection are open; see server.max_streams_per_conn",
	})
	close(release)
	f.want(1, "200")
}
