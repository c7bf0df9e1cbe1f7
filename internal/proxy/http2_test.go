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
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"adbuffer/internal/proxy"
	"adbuffer/internal/route"
	"adbuffer/internal/testsupport"
)

// wantProto2 fails unless a response came over HTTP/2, without fields of HTTP/1's
// connections.
func wantProto2(t *testing.T, res *http.Response) {
	t.Helper()
	if res.ProtoMajor != 2 {
		t.Errorf("the response came over %s", res.Proto)
	}
	for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade", "Trailer"} {
		if v, ok := res.Header[name]; ok {
			t.Errorf("the response has %s: %v", name, v)
		}
	}
}

func TestRequestsOverHTTP2TakeTheSameWay(t *testing.T) {
	var saw sync.Map
	m := newModeProxy(t, route.Single, overTLS, bidder{name: "a", handler: func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		saw.Store(r.URL.RawQuery, fmt.Sprintf("%s %s %q %v %s", r.Method, r.RequestURI, r.Header["X-Twice"], r.ContentLength, body))
		w.Header().Add("X-Of-Ssp", "1")
		w.Header().Add("X-Of-Ssp", "2")
		w.Header().Set("Keep-Alive", "timeout=5")
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.Contains(r.URL.RawQuery, "s=204"):
			w.WriteHeader(204)
		case strings.Contains(r.URL.RawQuery, "s=304"):
			w.WriteHeader(304)
		case strings.Contains(r.URL.RawQuery, "s=302"):
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(302)
		case strings.Contains(r.URL.RawQuery, "early"):
			w.WriteHeader(103)
			io.WriteString(w, "{}")
		default:
			io.WriteString(w, `{"of":"`+r.URL.RawQuery+`"}`)
		}
	}})
	c := m.client(true)
	for _, row := range []struct {
		method, query, body string
		status              int
		want, length        string
	}{
		{"GET", "q=1", "", 200, `{"of":"q=1"}`, "12"},
		{"HEAD", "q=2", "", 200, "", "12"},
		{"POST", "q=3", "0123456789", 200, `{"of":"q=3"}`, "12"},
		{"POST", "q=4", strings.Repeat("x", 200_000), 200, `{"of":"q=4"}`, "12"},
		{"GET", "s=204", "", 204, "", ""},
		{"GET", "s=304", "", 304, "", ""},
		{"GET", "s=302", "", 302, "", "0"},
		{"GET", "early", "", 200, "{}", "2"},
	} {
		res, body := m.ask(c, row.method, "/fill?"+row.query, row.body, "X-Twice: b", "X-Twice: a")
		m.want(res, row.status, "ssp/a")
		wantProto2(t, res)
		if body != row.want || res.Header.Get("Content-Length") != row.length || strings.Join(res.Header["X-Of-Ssp"], ",") != "1,2" {
			t.Errorf("%s %s: %q %v, want %q of length %q", row.method, row.query, body, res.Header, row.want, row.length)
		}
		want := fmt.Sprintf("%s /bid?%s %q %d %s", row.method, row.query, []string{"b", "a"}, len(row.body), row.body)
		if got, _ := saw.Load(row.query); got != want {
			t.Errorf("the SSP saw %.100v, want %.100s", got, want)
		}
	}
	testsupport.Equal(t, m.series(handshakes, "false"), 1, "%v connections")
	testsupport.Equal(t, m.series("adbuffer_client_http2_errors_total", ""), 0, "%v errors of HTTP/2")
	m.await(0, "adbuffer_buffered_bytes", "")
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
		{"GET", "404 Not Found", "0123456789abcdefg", []string{"17"}},
	} {
		l := respondingRaw(t, "HTTP/1.1 "+row.status+"\r\n"+head+row.body)
		m := newModeProxy(t, route.Single, overTLS, bidder{name: "a", addr: l.Addr().String()})
		res, body := m.ask(m.client(true), row.method, "/fill", "")
		wantProto2(t, res)
		res.Header.Del("Date")
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

func TestReasonsHaveTheSameStatusOverHTTP2(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.MaxBodyBytes = 1000 }),
		bids("a", "{}"), bidder{name: "dead", addr: "127.0.0.1:1"}, bidder{name: "broken", handler: http.NotFound, broken: true}, neverResponds("slow"))
	c := m.client(true)
	for _, row := range []struct {
		method, path, body string
		fields             []string
		status             int
		source, detail     string
	}{
		{"GET", "/fill", "", nil, 200, "ssp/a", "{}"},
		{"PUT", "/fill", "", nil, 405, "proxy/method_not_allowed", "GET, HEAD and POST are served"},
		{"GET", "/fill", "", []string{"X-Adbuffer-Timeout-Ms: soon"}, 400, "proxy/bad_request", "X-Adbuffer-Timeout-Ms"},
		{"POST", "/fill", strings.Repeat("x", 1001), nil, 413, "proxy/too_large", "server.max_body_bytes"},
		{"GET", "/fill", "", []string{"X-Long: " + strings.Repeat("x", 16<<10)}, 431, "proxy/too_large", "server.max_header_bytes"},
		{"GET", "/fill/dead", "", nil, 502, "proxy/connect_failed", `"ssp":"dead"`},
		{"GET", "/fill/slow", "", []string{"X-Adbuffer-Timeout-Ms: 30"}, 504, "proxy/deadline", `"ssp":"slow"`},
		{"GET", "/fill/broken", "", nil, 500, "proxy/internal", "see its log"},
		{"HEAD", "/nowhere", "", nil, 404, "proxy/no_route", ""},
	} {
		res, body := m.ask(c, row.method, row.path, row.body, row.fields...)
		m.want(res, row.status, row.source)
		wantProto2(t, res)
		testsupport.True(t, strings.Contains(body, row.detail), "%s %s: %s, want %s in it", row.method, row.path, body, row.detail)
	}
	testsupport.Equal(t, m.series(handshakes, "false"), 1, "%v connections: a refused stream ended its connection")
	testsupport.Equal(t, m.p.InFlight(), 0, "%d in flight")
}

func TestStreamsCountAgainstMaxInFlightAndBuffers(t *testing.T) {
	received, respond := make(chan struct{}, 10), make(chan struct{})
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.MaxInFlight, o.MaxBufferedBytes = 2, 5000 }),
		bidder{name: "a", handler: func(w http.ResponseWriter, _ *http.Request) {
			received <- struct{}{}
			<-respond
			io.WriteString(w, "{}")
		}})
	c := m.client(true)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			res, _ := m.ask(c, "POST", "/fill", strings.Repeat("x", 2000))
			m.want(res, 200, "ssp/a")
		})
	}
	<-received
	<-received
	res, body := m.ask(c, "GET", "/fill", "")
	m.want(res, 503, "proxy/overloaded")
	testsupport.True(t, strings.Contains(body, "2 of 2 requests are in flight"), "body: %s", body)
	m.reload(func(o *proxy.Options) { o.MaxInFlight = 3 })
	res, body = m.ask(c, "POST", "/fill", strings.Repeat("x", 2000))
	m.want(res, 503, "proxy/overloaded")
	testsupport.True(t, strings.Contains(body, "server.max_buffered_bytes"), "body: %s", body)
	close(respond)
	wg.Wait()
}

// A body over the limit is refused even if its length is not stated and most of it has not arrived.
func TestBodiesWithoutLengthAreBoundedOverHTTP2(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.MaxBodyBytes = 10_000 }), bidder{name: "a", handler: func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	}})
	c := m.client(true)
	for _, row := range []struct{ size, status int }{{0, 200}, {1, 200}, {10_000, 200}, {10_001, 413}, {10_000_000, 413}} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", m.https("/fill"), io.LimitReader(zeros{}, int64(row.size)))
		testsupport.NoError(t, err)
		res, err := c.Do(req)
		testsupport.NoError(t, err)
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != row.status || row.status == 200 && string(body) != fmt.Sprint(row.size) {
			t.Errorf("%d bytes: %d %s, want %d", row.size, res.StatusCode, body, row.status)
		}
	}
	m.await(0, "adbuffer_buffered_bytes", "")
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '0'
	}
	return len(b), nil
}

// Each request gets its own response. A thousand streams run at once over several connections, and
// the client resets some of them meanwhile.
func TestAThousandStreamsGetTheirOwnResponses(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.MaxInFlight = 2000; o.MaxBufferedBytes = 1 << 26 }),
		bidder{name: "a", handler: func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s", r.URL.RawQuery, body)
		}})
	const connections, each = 5, 200
	clients := make([]*http.Client, connections)
	for i := range clients {
		clients[i] = m.client(true)
		m.ask(clients[i], "GET", "/fill", "") // this request connects
	}
	m.await(connections, openClients, "")
	var wg sync.WaitGroup
	var reset, full atomic.Int64
	for i, c := range clients {
		for j := range each {
			wg.Go(func() {
				id := fmt.Sprintf("id=%d-%d", i, j)
				pad := strings.Repeat("y", j*20)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				req, err := http.NewRequestWithContext(ctx, "POST", m.https("/fill?"+id), strings.NewReader(id+pad))
				if err != nil {
					t.Error(err)
					return
				}
				if j%10 == 9 {
					time.AfterFunc(time.Duration(j)*50*time.Microsecond, cancel)
				}
				res, err := c.Do(req)
				if err != nil {
					testsupport.True(t, j%10 == 9, "%s: %v", id, err)
					reset.Add(1)
					return
				}
				defer res.Body.Close()
				body, err := io.ReadAll(res.Body)
				switch {
				case err != nil && j%10 == 9:
					reset.Add(1)
				case res.StatusCode == 503 && strings.Contains(string(body), `"pending_full"`):
					full.Add(1) // the pool has fewer places than there are streams, and refuses some
				case err != nil || res.StatusCode != 200 || string(body) != id+" "+id+pad:
					t.Errorf("%s: %v %d %.60s", id, err, res.StatusCode, body)
				}
			})
		}
	}
	wg.Wait()
	if t.Logf("%d streams were reset, %d refused by the pool", reset.Load(), full.Load()); reset.Load() == 0 {
		t.Error("no stream was reset")
	}
	m.await(0, inFlight, "")
	m.await(0, "adbuffer_buffered_bytes", "")
	testsupport.Equal(t, m.series(openClients, ""), connections, "%v connections")
}

// Requests that were sent get a response, the client gets GOAWAY, and no resource is left in use.
func TestDrainLosesNoStream(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
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
	busy.CloseIdleConnections()
	idle.CloseIdleConnections()
	testsupport.WantNoLeaks(t, leaks, goleak.IgnoreAnyFunction("net/http/httptest.(*Server).goServe.func1"), goleak.IgnoreAnyFunction("net/http.(*conn).serve"),
		goleak.IgnoreAnyFunction("adbuffer/internal/pool.(*Pool).janitor"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"), goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
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
	testsupport.AtLeast(t, m.series(handshakes, "false"), 3, "%v connections for three requests")
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
	if err := <-failed; err == nil || strings.HasPrefix(err.Error(), "status") {
		t.Errorf("the client saw %v", err)
	}
	close(respond)
	m.await(0, inFlight, "")
	m.await(0, openClients, "")
}

// HTTP/2 without TLS is offered only with server.h2c.
func TestPrefaceOfHTTP2InTheClearIsMalformed(t *testing.T) {
	m := newModeProxy(t, route.Single, nil, bids("a", "{}"))
	c := m.dial()
	exchange(t, c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", 400)
	if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("the connection was not closed")
	}
}

func h2c(o *proxy.Options, _ *route.Route) { o.H2C = true }

// An HTTP/2 client with prior knowledge and an HTTP/1 client are served on one cleartext listener,
// also after an idle time.
func TestPriorKnowledgeIsServedWithH2C(t *testing.T) {
	m := newModeProxy(t, route.Single, func(o *proxy.Options, rt *route.Route) { h2c(o, rt); o.ReduceIdleMemory = true }, bids("a", "{}"))
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	for range 3 {
		req, err := http.NewRequestWithContext(t.Context(), "POST", m.url+"/fill", strings.NewReader(strings.Repeat("x", 100_000)))
		testsupport.NoError(t, err)
		res, err := transport.RoundTrip(req)
		testsupport.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		m.want(res, 200, "ssp/a")
		wantProto2(t, res)
		testsupport.True(t, string(body) == "{}" && err == nil, "%s %v", body, err)
		time.Sleep(50 * time.Millisecond) // the connection is parked meanwhile
	}
	testsupport.Equal(t, m.series(openClients, ""), 1, "%v connections for three requests")
	res, _ := m.do("GET", "/fill")
	m.want(res, 200, "ssp/a")
	if res.ProtoMajor != 1 {
		t.Errorf("a client of HTTP/1 got %s", res.Proto)
	}
}

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
		if _, err := io.ReadFull(c, frame[:]); err != nil || frame[3] != 4 {
			t.Errorf("cut at %d: got % x, %v, want SETTINGS", cut, frame, err)
		}
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

// A stream beyond server.max_streams_per_conn is refused. A request whose stream was reset still
// counts until its SSP has responded.
func TestStreamsThatWereResetCountUntilTheyAreServed(t *testing.T) {
	received, release := make(chan struct{}, 10), make(chan struct{})
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.MaxStreams = 3 }),
		bidder{name: "a", handler: func(http.ResponseWriter, *http.Request) { received <- struct{}{}; <-release }})
	f := m.frames(t)
	for _, id := range []uint32{1, 3, 5} {
		f.request(id, true, "x-adbuffer-timeout-ms", "60000")
		<-received
	}
	f.request(7, true)
	if a := f.responseTo(7); !a.reset {
		t.Errorf("the fourth stream: %+v, want a reset", a)
	}
	close(release)
	if a := f.responseTo(1); a.status != "200" {
		t.Errorf("the first stream: %+v", a)
	}
}
