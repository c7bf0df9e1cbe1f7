package endpoints

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// checkedServer is an SSP on net/http that records the health checks it gets.
type checkedServer struct {
	addr   string
	status atomic.Int32 // of responses to health checks
	large  atomic.Bool  // they have a body of a megabyte
	ads    atomic.Int32
	open   atomic.Int32 // connections

	mu    sync.Mutex
	seen  map[string]int  // protocol, method, Host and path of the checks
	peers map[string]bool // addresses from which the checks came
}

func startCheckedServer(t *testing.T, authority *e2e.Authority, protocols *http.Protocols) *checkedServer {
	t.Helper()
	s := &checkedServer{seen: map[string]int{}, peers: map[string]bool{}}
	s.status.Store(200)
	ln := testsupport.Listen(t)
	s.addr = ln.Addr().String()
	server := &http.Server{Handler: s, Protocols: protocols, ConnState: func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.open.Add(1)
		case http.StateClosed:
			s.open.Add(-1)
		}
	}}
	serve := func() error { return server.Serve(ln) }
	if authority != nil {
		server.TLSConfig = &tls.Config{NextProtos: []string{"h2"}}
		serve = func() error { return server.ServeTLS(ln, authority.File("cert.pem"), authority.File("key.pem")) }
	}
	var wg sync.WaitGroup
	wg.Go(func() { serve() })
	t.Cleanup(func() { server.Close(); wg.Wait() })
	return s
}

// checks returns how many checks arrived.
func (s *checkedServer) checks() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.seen {
		n += of
	}
	return n
}

func (s *checkedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/health" {
		s.ads.Add(1)
		fmt.Fprint(w, `{"seatbid":[{"bid":[{}]}]}`)
		return
	}
	s.mu.Lock()
	s.seen[fmt.Sprint(r.Proto, " ", r.Method, " ", r.Host, " ", r.RequestURI)]++
	s.peers[r.RemoteAddr] = true
	s.mu.Unlock()
	w.WriteHeader(int(s.status.Load()))
	if s.large.Load() {
		fmt.Fprint(w, strings.Repeat("x", 1<<20))
	}
}

// wantChecks checks that all checks looked the same, and came over one connection.
func (s *checkedServer) wantChecks(t *testing.T, want string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.seen) != 1 || s.seen[want] < 3 || len(s.peers) != 1 {
		t.Errorf("%d connections brought the checks %v, want one connection, and only %q", len(s.peers), s.seen, want)
	}
}

// Health checks use the SSP's protocol, its TLS settings and its Host, over one connection. They take
// an endpoint out of use and bring it back, without a request from a client.
func TestHealthChecksUseTheSSPsProtocol(t *testing.T) {
	t.Parallel()
	authority := e2e.NewAuthority(t)
	var http1, http2, h2c http.Protocols
	http1.SetHTTP1(true)
	http2.SetHTTP2(true)
	h2c.SetUnencryptedHTTP2(true)
	rows := []*struct {
		protocol, scheme, proto string
		speaks                  *http.Protocols
		a, b                    *checkedServer
	}{
		{"http1", "http", "HTTP/1.1", &http1, nil, nil},
		{"http1-pipelined", "http", "HTTP/1.1", &http1, nil, nil},
		{"h2c", "http", "HTTP/2.0", &h2c, nil, nil},
		{"http2", "https", "HTTP/2.0", &http2, nil, nil},
		{"auto", "https", "HTTP/2.0", &http2, nil, nil},
		{"http1", "https", "HTTP/1.1", &http1, nil, nil},
	}
	ssps, routes := "ssps:\n", "routes:\n"
	for i, row := range rows {
		of, settings := authority, fmt.Sprintf("tls: {ca_file: %q}", authority.File("ca.pem"))
		if row.scheme == "http" {
			of, settings = nil, ""
		}
		row.a, row.b = startCheckedServer(t, of, row.speaks), startCheckedServer(t, of, row.speaks)
		ssps += fmt.Sprintf("  - {name: s%[1]d, endpoints: [\"%[2]s://%[3]s/bid\", \"%[2]s://%[4]s/bid\"], protocol: %[5]s, host: rtb.openx.example, health_check: {path: /health, interval: 100ms, timeout: 1m}, %[6]s}\n",
			i, row.scheme, row.a.addr, row.b.addr, row.protocol, settings)
		routes += fmt.Sprintf("  - {name: s%[1]d, match: {path: /s%[1]d}, ssps: [s%[1]d]}\n", i)
	}
	ab := e2e.Start(t, ssps+routes)
	for i, row := range rows {
		ssp, a, b := fmt.Sprint("s", i), row.a, row.b
		t.Run(row.protocol+" "+row.scheme, func(t *testing.T) {
			for _, s := range []*checkedServer{a, b} {
				ab.AwaitMetricAbove(4, "adbuffer_endpoint_checks_total", "endpoint="+s.addr, "result=ok")
				s.wantChecks(t, row.proto+" GET rtb.openx.example /health")
			}
			testsupport.Equal(t, ab.Scrape().Sum("adbuffer_pool_connections_opened_total", "ssp="+ssp), 0, "health checks opened %v connections of the pool")

			b.status.Store(503)
			ab.AwaitMetric(1, "adbuffer_endpoint_state", "endpoint="+b.addr, "state=unhealthy")
			if failed := ab.Metric("adbuffer_endpoint_checks_total", "endpoint="+b.addr, "result=failed"); failed < 3 {
				t.Errorf("%v checks failed, want at least 3", failed)
			}
			testsupport.Equal(t, a.ads.Load()+b.ads.Load(), 0, "%d requests were sent, want none")
			for range 20 {
				ab.Get("/" + ssp).WantFill(ssp)
			}
			testsupport.Equal(t, b.ads.Load(), 0, "the unhealthy endpoint got %d requests")
			const fails = "an endpoint fails its health checks and gets no requests; see health_check"
			ab.WantLogged(fails, "endpoint="+b.addr, "why=status 503")
			if _, body := ab.AskAdmin("/pools?ssp=" + ssp); !strings.Contains(body, `"unhealthy"`) || !strings.Contains(body, `"last_check_error": "status 503"`) {
				t.Errorf("/pools: %s", body)
			}
			if _, body := ab.AskAdmin("/ssps"); strings.Count(body, `"unhealthy"`) != 1 {
				t.Errorf("/ssps: %s", body)
			}
			_, explained := ab.SendAdmin("POST", "/explain", "GET /"+ssp+" HTTP/1.1\r\nHost: ads.example\r\n\r\n")
			if want := "endpoint " + b.addr + " is unhealthy: status 503; see health_check"; !strings.Contains(explained, want) {
				t.Errorf("explain says %s, want %q", explained, want)
			}

			b.status.Store(302)
			ab.AwaitMetric(1, "adbuffer_endpoint_state", "endpoint="+b.addr, "state=enabled")
			testsupport.Eventually(t, "it gets requests again", func() bool {
				ab.Get("/" + ssp).WantFill(ssp)
				return b.ads.Load() > 0
			})
			ab.WantLogged("an endpoint passes its health checks again and gets requests", "endpoint="+b.addr)

			b.large.Store(true)
			ab.AwaitMetric(1, "adbuffer_endpoint_state", "endpoint="+b.addr, "state=unhealthy")
			if _, body := ab.AskAdmin("/pools?ssp=" + ssp); !strings.Contains(body, "over 65536 bytes, the limit of a health check") {
				t.Errorf("/pools: %s", body)
			}
			b.large.Store(false)
			ab.AwaitMetric(1, "adbuffer_endpoint_state", "endpoint="+b.addr, "state=enabled")
		})
	}
}

// A drain stops the health checks. So does a reload that removes the SSP.
func TestHealthChecksStopWithTheirSSP(t *testing.T) {
	t.Parallel()
	var http1 http.Protocols
	http1.SetHTTP1(true)
	a, b := startCheckedServer(t, nil, &http1), startCheckedServer(t, nil, &http1)
	config := func(ssps string) string {
		return fmt.Sprintf(`
server: {drain: {delay: 1m}}
ssp_defaults: {health_check: {path: /health, interval: 100ms, timeout: 1m}}
ssps: [%s]
routes: [{name: default, match: {path: /fillbuffer}, ssps: [a]}]
`, ssps)
	}
	ofA, ofB := fmt.Sprintf(`{name: a, endpoints: ["http://%s/bid"]}`, a.addr), fmt.Sprintf(`{name: b, endpoints: ["http://%s/bid"]}`, b.addr)
	ab := e2e.Start(t, config(ofA+", "+ofB))
	for _, s := range []*checkedServer{a, b} {
		testsupport.Eventually(t, "checks arrive", func() bool { return s.checks() > 2 })
	}
	wantStop := func(s *checkedServer, other func()) {
		t.Helper()
		testsupport.Eventually(t, "the connection of the checks is closed", func() bool { return s.open.Load() == 0 })
		before := s.checks()
		other()
		testsupport.Equal(t, s.checks()-before, 0, "%d checks arrived later")
	}
	ab.Take(config(ofA))
	wantStop(b, func() {
		before := a.checks()
		testsupport.Eventually(t, "the other SSP is still checked", func() bool { return a.checks() > before+5 })
	})
	ab.BeginDrain()
	wantStop(a, func() { time.Sleep(500 * time.Millisecond) })
	ab.Get("/fillbuffer").WantFill("a")
}
