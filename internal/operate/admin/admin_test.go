package admin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestMain(m *testing.M) { testsupport.Main(m) }

const token = "correct-horse-battery-staple"

// beyond is the address of a listener that other machines reach.
var beyond = fakeListener{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 9090}}

var loopback = fakeListener{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9090}}

type fakeListener struct{ addr net.Addr }

func (l fakeListener) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (l fakeListener) Close() error              { return nil }
func (l fakeListener) Addr() net.Addr            { return l.addr }

// console is an admin server and its log.
type console struct {
	*Server
	t     *testing.T
	level zap.AtomicLevel
	logs  *observer.ObservedLogs
}

func newConsole(t *testing.T, l net.Listener, change func(*Options)) *console {
	t.Helper()
	c := &console{t: t, level: zap.NewAtomicLevelAt(zap.InfoLevel)}
	core, logs := observer.New(c.level)
	c.logs = logs
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "adbuffer_in_flight_requests"}))
	o := Options{
		Token: func() string { return token }, Metrics: promhttp.HandlerFor(reg, promhttp.HandlerOpts{}), Ready: func() error { return nil }, Level: &c.level, Log: zap.New(core),
		Pools:   func(string) any { return map[string]any{"pools": []string{"openx"}} },
		History: func(string) any { return map[string]any{"step_seconds": 2} },
		Config:  func() []byte { return []byte("admin: {}\n") },
	}
	if change != nil {
		change(&o)
	}
	c.Server = New(o, l)
	return c
}

// ask sends a request; fields are names and values in turns.
func (c *console) ask(method, path, body string, fields ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "localhost:9090"
	if !c.loopback {
		r.Host = "adbuffer-0.example:9090"
	}
	for i := 0; i < len(fields); i += 2 {
		if fields[i] == "Host" {
			r.Host = fields[i+1]
		} else {
			r.Header.Set(fields[i], fields[i+1])
		}
	}
	w := httptest.NewRecorder()
	c.server.Handler.ServeHTTP(w, r)
	return w
}

func (c *console) want(status int, method, path, body string, fields ...string) string {
	c.t.Helper()
	w := c.ask(method, path, body, fields...)
	testsupport.True(c.t, w.Code == status, "%s %s %v: %d, want %d: %s", method, path, fields, w.Code, status, w.Body)
	return w.Body.String()
}

var (
	openPaths    = []string{"/metrics", "/healthz", "/readyz"}
	guardedPaths = []string{"/", "/pools", "/history", "/config", "/log/level", "/debug/pprof/", "/debug/pprof/cmdline", "/capture", "/sample", "/failures", "/tail", "/ssps", "/no/such/page"}
)

func TestMetricsAndHealthNeedNoTokenAnywhere(t *testing.T) {
	for _, l := range []net.Listener{loopback, beyond} {
		c := newConsole(t, l, nil)
		for _, path := range openPaths {
			c.want(200, "GET", path, "")
		}
	}
}

func TestBeyondLoopbackAllOtherPathsNeedTheToken(t *testing.T) {
	c := newConsole(t, beyond, nil)
	for _, path := range guardedPaths {
		for _, fields := range [][]string{
			nil, {"Authorization", "Bearer"}, {"Authorization", "Bearer "}, {"Authorization", "Bearer " + token + "x"},
			{"Authorization", "Bearer " + token[1:]}, {"Authorization", "Basic " + token}, {"Authorization", token},
			{"Cookie", "token=" + token}, {"Host", "localhost"}, {"X-Forwarded-For", "127.0.0.1"},
		} {
			c.want(403, "GET", path, "", fields...)
		}
	}
	for _, path := range guardedPaths[:7] {
		c.want(200, "GET", path, "", "Authorization", "Bearer "+token)
		c.want(200, "GET", path, "", "Authorization", "bearer "+token) // RFC 9110, section 11.1: the scheme is case-insensitive
	}
	c.want(403, "PUT", "/log/level", "debug")
	c.want(403, "POST", "/explain", "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	c.want(403, "GET", "/pools?token="+token, "")
}

// The listener completes no handshake with a certificate that it has not verified: see
// handshake.VerifyClients and TestClientsNeedACertificateWhereTheAuthorityIsNamed.
func TestBeyondLoopbackAVerifiedClientCertificateGivesTheTokensAccess(t *testing.T) {
	c := newConsole(t, beyond, func(o *Options) { o.Token = func() string { return "" } })
	for name, row := range map[string]struct {
		state *tls.ConnectionState
		want  int
	}{
		"cleartext": {nil, 403}, "no certificate": {&tls.ConnectionState{}, 403},
		"a certificate": {&tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}, 200},
	} {
		for _, path := range guardedPaths[:7] {
			r := httptest.NewRequest("GET", path, nil)
			r.Host, r.TLS = "adbuffer-0.example:9090", row.state
			w := httptest.NewRecorder()
			c.server.Handler.ServeHTTP(w, r)
			testsupport.True(t, w.Code == row.want, "%s: %s responds with %d, want %d", name, path, w.Code, row.want)
		}
	}
	got := c.want(403, "GET", "/pools", "")
	for _, setting := range []string{"admin.token_file", "admin.client_ca_file"} {
		testsupport.True(t, strings.Contains(got, setting), "the response does not name %s: %s", setting, got)
	}
}

func TestBeyondLoopbackWithoutATokenThereIsNoAccess(t *testing.T) {
	c := newConsole(t, beyond, func(o *Options) { o.Token = func() string { return "" } })
	for _, path := range guardedPaths {
		c.want(403, "GET", path, "")
		c.want(403, "GET", path, "", "Authorization", "Bearer ")
	}
	c.want(200, "GET", "/metrics", "")
}

func TestANewTokenGivesAccessAtOnce(t *testing.T) {
	now := token
	c := newConsole(t, beyond, func(o *Options) { o.Token = func() string { return now } })
	c.want(200, "GET", "/pools", "", "Authorization", "Bearer "+token)
	now = "another"
	c.want(403, "GET", "/pools", "", "Authorization", "Bearer "+token)
	c.want(200, "GET", "/pools", "", "Authorization", "Bearer another")
}

func TestOnLoopbackNoTokenIsNeeded(t *testing.T) {
	c := newConsole(t, loopback, nil)
	for _, path := range guardedPaths[:7] {
		c.want(200, "GET", path, "")
	}
}

func TestOnLoopbackAForeignHostIsRefused(t *testing.T) {
	c := newConsole(t, loopback, nil)
	for _, host := range []string{"localhost", "LOCALHOST:9090", "127.0.0.1", "127.0.0.1:9090", "127.9.9.9:1", "[::1]:9090", "[::1]"} {
		c.want(200, "GET", "/pools", "", "Host", host)
	}
	for _, host := range []string{"evil.example", "evil.example:9090", "localhost.evil.example", "127.0.0.1.evil.example:9090", "192.0.2.1:9090", "[::2]", "", "localhost:9090:9090", "0.0.0.0"} {
		for _, path := range append(openPaths, guardedPaths...) {
			c.want(403, "GET", path, "", "Host", host)
		}
	}
	newConsole(t, beyond, nil).want(200, "GET", "/metrics", "", "Host", "evil.example")
}

func TestOnlyOperatorsGetMetricsThatAreNotCached(t *testing.T) {
	var got string
	metrics := func(o *Options) {
		o.Metrics = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get("Cache-Control") })
	}
	local, remote := newConsole(t, loopback, metrics), newConsole(t, beyond, metrics)
	for _, row := range []struct {
		name   string
		c      *console
		fields []string
		want   string
	}{
		{"on loopback", local, nil, "no-cache"},
		{"a page of another origin", local, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, ""},
		{"beyond loopback", remote, nil, ""},
		{"beyond loopback with the token", remote, []string{"Authorization", "Bearer " + token}, "no-cache"},
	} {
		row.c.want(200, "GET", "/metrics", "", append(row.fields, "Cache-Control", "no-cache")...)
		testsupport.Equal(t, got, row.want, "%[2]s: Cache-Control is %[1]q", row.name)
	}
}

func TestAPageOfAnotherOriginChangesNothing(t *testing.T) {
	c := newConsole(t, loopback, nil)
	for _, fields := range [][]string{
		{"Origin", "https://evil.example"}, {"Origin", "null"}, {"Origin", "http://localhost:3000"}, {"Origin", "http://localhost.evil.example:9090"},
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
	} {
		c.want(403, "PUT", "/log/level", "debug", fields...)
	}
	testsupport.MustEqual(t, c.level.Level(), zap.InfoLevel, "the level is %v")
	c.want(200, "PUT", "/log/level", "debug", "Origin", "http://localhost:9090", "Sec-Fetch-Site", "same-origin")
	c.want(200, "PUT", "/log/level", "warn") // curl
	testsupport.Equal(t, c.level.Level(), zap.WarnLevel, "the level is %v")
	b := newConsole(t, beyond, nil)
	b.want(403, "PUT", "/log/level", "debug", "Authorization", "Bearer "+token, "Origin", "https://evil.example")
}

// A web page that an operator opens must not be able to use the profiler, an SSP's capture or tails.
func TestAPageOfAnotherOriginEmbedsNothing(t *testing.T) {
	c := newConsole(t, loopback, nil)
	for _, site := range []string{"cross-site", "same-site"} {
		for mode, dest := range map[string]string{"no-cors": "image", "cors": "empty", "navigate": "iframe"} {
			c.want(403, "GET", "/pools", "", "Sec-Fetch-Site", site, "Sec-Fetch-Mode", mode, "Sec-Fetch-Dest", dest)
		}
		c.want(200, "GET", "/pools", "", "Sec-Fetch-Site", site, "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document") // a link
	}
	for _, site := range []string{"none", "same-origin"} {
		c.want(200, "GET", "/pools", "", "Sec-Fetch-Site", site, "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty")
	}
	c.want(200, "GET", "/healthz", "", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty")
}

func TestLogLevelIsChangedAndLogged(t *testing.T) {
	c := newConsole(t, loopback, nil)
	for _, body := range []string{`{"level":"error"}`, `{"level":"debug"}`, "warn\n", "info"} {
		if got := c.want(200, "PUT", "/log/level", body); !strings.Contains(got, c.level.Level().String()) {
			t.Errorf("PUT %q responds with %s", body, got)
		}
	}
	if n := c.logs.FilterMessageSnippet("log level changed").Len(); n != 4 {
		t.Errorf("%d lines about 4 changes: %v", n, c.logs.All())
	}
	if got := c.want(200, "GET", "/log/level", ""); !strings.Contains(got, `"info"`) {
		t.Errorf("the level is shown as %s", got)
	}
	for _, bad := range []string{"", "loud", "fatal", "panic", `{"level":`, `{"level":"trace"}`, "INFO "} {
		c.want(400, "PUT", "/log/level", bad)
	}
	c.want(413, "PUT", "/log/level", strings.Repeat("x", maxLevelBytes+1))
	c.want(405, "POST", "/log/level", "debug")
	testsupport.Equal(t, c.level.Level(), zap.InfoLevel, "a bad level changed it to %v")
}

func TestTheSampleIsClearedAndTheClearingIsLogged(t *testing.T) {
	cleared := 0
	c := newConsole(t, loopback, func(o *Options) { o.ClearSample = func() { cleared++ } })
	c.want(200, "PUT", "/sample", `{"state":"cleared"}`)
	testsupport.True(t, cleared == 1 && c.logs.FilterMessageSnippet("cleared the sample").Len() == 1, "cleared %d times, the log has %v", cleared, c.logs.All())
	for _, bad := range []string{"", "cleared", `{"state":"off"}`, `{"state":"cleared","weight":1}`} {
		c.want(400, "PUT", "/sample", bad)
	}
	c.want(405, "GET", "/sample", "")
	testsupport.Equal(t, cleared, 1, "cleared %d times")
}

func TestReadyzNamesTheReason(t *testing.T) {
	c := newConsole(t, loopback, func(o *Options) { o.Ready = func() error { return errors.New("draining") } })
	testsupport.Equal(t, c.want(503, "GET", "/readyz", ""), "draining\n", "/readyz says %q")
	testsupport.Equal(t, c.want(200, "GET", "/healthz", ""), "alive\n", "/healthz says %q")
	c = newConsole(t, loopback, nil)
	testsupport.Equal(t, c.want(200, "GET", "/readyz", ""), "ready\n", "/readyz says %q")
}

func TestCaptureHoldsItsParametersToTheirBounds(t *testing.T) {
	var asked []int
	c := newConsole(t, loopback, func(o *Options) {
		o.Capture = func(ctx context.Context, ssp string, n int) (any, error) {
			asked = append(asked, n)
			if end, ok := ctx.Deadline(); !ok || time.Until(end) > maxWait {
				t.Errorf("a capture may wait until %v", end)
			}
			switch ssp {
			case "openx":
				return []string{}, nil
			case "busy":
				return nil, ErrCaptureBusy
			case "off":
				return nil, ErrCaptureOff
			default:
				return nil, &UnknownError{"SSP", ssp, []string{"openx"}}
			}
		}
	})
	c.want(200, "GET", "/capture?ssp=openx", "")
	c.want(200, "GET", "/capture?ssp=openx&n=100&wait=1m", "")
	if got := c.want(404, "GET", "/capture?ssp=other", ""); !strings.Contains(got, "there are openx") {
		t.Errorf("the response does not name the SSPs: %s", got)
	}
	c.want(404, "GET", "/capture", "")
	c.want(409, "GET", "/capture?ssp=busy", "")
	if got := c.want(404, "GET", "/capture?ssp=off", ""); !strings.Contains(got, "admin.capture") {
		t.Errorf("the response does not name the setting: %s", got)
	}
	testsupport.True(t, len(asked) == 6 && asked[0] == 1 && asked[1] == 100, "asked for %v exchanges", asked)
	for _, bad := range []string{"n=0", "n=101", "n=-1", "n=x", "wait=0s", "wait=61s", "wait=10", "wait=-1s"} {
		c.want(400, "GET", "/capture?ssp=openx&"+bad, "")
	}
}

func TestCloseEndsACaptureThatWaits(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testsupport.NoError(t, err)
	waiting := make(chan struct{})
	c := newConsole(t, l, func(o *Options) {
		o.Capture = func(ctx context.Context, _ string, _ int) (any, error) {
			close(waiting)
			<-ctx.Done()
			return []string{}, nil
		}
	})
	served := make(chan error, 1)
	go func() { served <- c.Serve(l) }()
	responded := make(chan error, 1)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	go func() {
		res, err := client.Get("http://" + l.Addr().String() + "/capture?ssp=openx&wait=1m")
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
		responded <- err
	}()
	<-waiting
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c.Close(ctx)
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := <-responded; err != nil || ctx.Err() != nil {
		t.Errorf("the capture got %v; Close: %v", err, ctx.Err())
	}
}
