package proxy_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	clienthttp1 "adbuffer/internal/client/http1"
	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/ssp/http1"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/logs"
	"adbuffer/internal/wire/openrtb"
	"adbuffer/internal/wire/socket"
)

// These tests check the client's view of the modes. Package route tests the modes themselves.

// bidder is an SSP that responds by its handler.
type bidder struct {
	name    string
	handler http.HandlerFunc
	broken  bool   // its connections panic
	addr    string // the SSP's address, "" = a server of its own
	conns   int    // of its pool at most; 0 = 64
	share   int64  // its MaxBufferedBytes
	most    int    // bytes of its responses' bodies; 0 = 1 MiB
	removed bool   // its pool is closed
	edit    *openrtb.Edit
}

func bids(name, body string) bidder {
	return bidder{name: name, handler: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Got-Encoding", r.Header.Get("Accept-Encoding"))
		io.WriteString(w, body)
	}}
}

func respondsWith(name string, status int) bidder {
	return bidder{name: name, handler: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }}
}

// neverResponds is an SSP that responds only after the proxy has closed its connection.
func neverResponds(name string) bidder {
	return bidder{name: name, handler: func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}}
}

// neverRespondsCounting is neverResponds for SSPs that count their requests together.
func neverRespondsCounting(received *atomic.Int32) func(name string) bidder {
	return func(name string) bidder {
		b := neverResponds(name)
		stay := b.handler
		b.handler = func(w http.ResponseWriter, r *http.Request) {
			received.Add(1)
			stay(w, r)
		}
		return b
	}
}

type connector struct {
	addr   netip.AddrPort
	broken bool
	most   int // bytes of a response's body; 0 = 1 MiB
}

type brokenConn struct{ exchange.Conn }

func (brokenConn) Do(*exchange.Exchange) error { panic("broken") }

func (c connector) Addresses(context.Context) ([]exchange.Address, error) {
	return []exchange.Address{{Endpoint: exchange.Endpoint{Authority: "127.0.0.1"}, AddrPort: c.addr}}, nil
}

func (c connector) Dial(ctx context.Context, a exchange.Address, _ []exchange.Address, _ bool, owner exchange.Owner) (pool.Dialed, error) {
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", a.AddrPort.String())
	if err != nil {
		return pool.Dialed{}, &exchange.Error{Outcome: exchange.ConnectFailed, Err: err}
	}
	sock := socket.New(nc)
	var conn exchange.Conn = http1.New(sock, sock, owner, &http1.Options{MaxResponseBytes: cmp.Or(c.most, 1<<20), MaxResponseHeaderBytes: 16 << 10})
	if c.broken {
		conn = brokenConn{conn}
	}
	return pool.Dialed{Conn: conn}, nil
}

// modeProxy is a proxy of one route, on a real socket.
type modeProxy struct {
	t       testing.TB
	p       *proxy.Proxy
	options proxy.Options
	route   *route.Route
	url     string
	logs    *observer.ObservedLogs

	listeners int // beside the first one; fasthttp counts each as a connection

	requests *logs.RequestLog
	limiter  *logs.Limiter
}

func newModeProxy(t testing.TB, mode route.Mode, change func(*proxy.Options, *route.Route), bidders ...bidder) *modeProxy {
	t.Helper()
	rt := &route.Route{Name: "r", Match: route.Match{Path: "/fill"}, Mode: mode, ClientChoice: true}
	for _, b := range bidders {
		server := httptest.NewServer(b.handler)
		if b.addr == "" {
			b.addr = server.Listener.Addr().String()
		}
		pl := pool.New(pool.Options{
			SSP: b.name, MaxConns: cmp.Or(b.conns, 64), MaxHTTP2Conns: 1, MaxIdle: 64, MaxPending: 1000, PendingTimeout: time.Minute, MaxDials: 4,
			BackoffMin: time.Millisecond, BackoffMax: time.Millisecond, ConnectTimeout: time.Minute, Protocol: exchange.HTTP1, MaxStreams: 1, Endpoints: []balancer.Options{{Name: b.addr, Weight: 1}},
		}, connector{netip.MustParseAddrPort(b.addr), b.broken, b.most})
		if b.removed {
			pl.Close(context.Background())
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithCancel(context.Background())
			if b.broken {
				cancel() // the place of the request that panicked is not released
			}
			pl.Close(ctx)
			cancel()
			server.Close()
		})
		o := ssp.Options{Name: b.name, MaxBufferedBytes: b.share, Scheme: "http", Path: "/bid", Edit: b.edit, MaxBodyBytes: 1 << 18, Policy: header.NewPolicy(header.PolicyOptions{Pass: []string{"Set-Cookie"}, RequestID: "X-Request-Id"})}
		rt.Targets = append(rt.Targets, route.Target{SSP: ssp.New(o, pl), Weight: 1})
	}
	o := proxy.Options{
		Options: clienthttp1.Options{
			MaxConnections: 100, MaxStreams: 250, MaxBufferedBytes: 1 << 20, ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
			MaxHeaderBytes: 16 << 10, MaxBodyBytes: 1 << 18, AbortOnClose: true,
		},
		MaxInFlight: 100, MaxUploads: 1000, ErrorDetail: true,
		Deadline: proxy.DeadlineOptions{Default: 30 * time.Second, Max: time.Minute, Header: "X-Adbuffer-Timeout-Ms"},
		Access:   logs.AccessOptions{Enabled: true, Sample: 1}, RequestIDField: "X-Request-Id",
	}
	if change != nil {
		change(&o, rt)
	}
	core, lines := observer.New(zap.InfoLevel)
	log := zap.New(core)
	limiter := logs.NewLimiter(log)
	requests := logs.NewRequestLog(log, limiter)
	p := proxy.New(o, route.NewTable([]*route.Route{rt}), log, requests, func() bool { return true })
	l := testsupport.Listen(t)
	served := make(chan error, 1)
	go func() { served <- p.Serve(l) }()
	t.Cleanup(func() {
		p.Drain(context.Background())
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return &modeProxy{t: t, p: p, options: o, route: rt, url: "http://" + l.Addr().String(), logs: lines, requests: requests, limiter: limiter}
}

// do sends a request on a connection of its own.
func (m *modeProxy) do(method, target string, fields ...string) (*http.Response, string) {
	m.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(m.url, "http://"))
	testsupport.NoError(m.t, err)
	defer c.Close()
	lines := append([]string{method + " " + target + " HTTP/1.1", "Host: adbuffer.test", "Connection: close"}, fields...)
	send(m.t, c, strings.Join(lines, "\r\n")+"\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	testsupport.NoError(m.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	testsupport.NoError(m.t, err)
	return res, string(body)
}

// want checks status and source of a response.
func (m *modeProxy) want(res *http.Response, status int, source string) {
	m.t.Helper()
	got := res.Header.Get("X-Adbuffer-Source")
	testsupport.True(m.t, res.StatusCode == status && got == source, "response %d of %s, want %d of %s", res.StatusCode, got, status, source)
	testsupport.Equal(m.t, len(res.Header.Values("Date")), 1, "%d Date fields")
}

// series returns the value of a counter or gauge, or the sum of a histogram, by its name and a label's value, "" if it has no
// labels. If the series have a route too, it returns the one of route r.
func (m *modeProxy) series(name, label string) float64 {
	m.t.Helper()
	return m.seriesOf(name, label, "r")
}

// gather returns the proxy's metrics.
func (m *modeProxy) gather() []*dto.MetricFamily {
	m.t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(m.p.Metrics())
	families, err := reg.Gather()
	testsupport.NoError(m.t, err)
	return families
}

// seriesOf returns the value of a series of a route.
func (m *modeProxy) seriesOf(name, label, route string) float64 {
	m.t.Helper()
	for _, f := range m.gather() {
		if f.GetName() != name {
			continue
		}
		for _, s := range f.GetMetric() {
			l := s.GetLabel()
			if len(l) == 0 && label == "" || len(l) > 0 && l[0].GetValue() == label && (len(l) == 1 || l[1].GetValue() == route) {
				return s.GetCounter().GetValue() + s.GetGauge().GetValue() + s.GetHistogram().GetSampleSum()
			}
		}
	}
	m.t.Fatalf("no series %s of %q", name, label)
	return 0
}

func TestParallelAllRespondsWithAnEnvelope(t *testing.T) {
	m := newModeProxy(t, route.ParallelAll, nil, bids("a", `{"id":"1"}`), respondsWith("b", 204), respondsWith("c", 503))
	res, body := m.do("GET", "/fill?x=1", "Accept-Encoding: gzip")
	m.want(res, 200, "proxy/merged")
	testsupport.Equal(t, res.Header.Get("Content-Type"), "application/json", "Content-Type: %s")
	var got struct {
		Results []struct {
			SSP    string
			Status int
			Body   json.RawMessage
		}
	}
	err := json.Unmarshal([]byte(body), &got)
	testsupport.MustTrue(t, err == nil, "%v: %s", err, body)
	if len(got.Results) != 3 || got.Results[0].SSP != "a" || string(got.Results[0].Body) != `{"id":"1"}` || got.Results[1].Status != 204 || got.Results[2].Status != 503 {
		t.Errorf("envelope: %s", body)
	}
	testsupport.Equal(t, m.series("adbuffer_requests_total", "merged"), 1, "%v requests are merged")
	testsupport.True(t, m.p.Snapshot().Fills == 1 && m.p.Routes()[0].Merged == 1, "%d fills", m.p.Snapshot().Fills)
	testsupport.Equal(t, m.series("adbuffer_no_ad_total", "ssp")+m.series("adbuffer_no_ad_total", "proxy"), 0, "%v responses counted as without an ad: the reader of the envelope decides that")
	testsupport.Equal(t, m.p.InFlight(), 0, "%d are in flight")
}

func TestHEADIsRefusedInParallelModes(t *testing.T) {
	for _, mode := range []route.Mode{route.ParallelFirst, route.ParallelAll} {
		m := newModeProxy(t, mode, nil, bids("a", "{}"), bids("b", "{}"))
		res, _ := m.do("HEAD", "/fill")
		m.want(res, 405, "proxy/method_not_allowed")
		testsupport.Equal(t, res.Header.Get("Allow"), "GET, POST", "Allow: %s")
		testsupport.Equal(t, m.series("adbuffer_requests_total", "method_not_allowed"), 1, "%v requests are refused")
		res, _ = m.do("HEAD", "/fill/b") // one SSP responds
		m.want(res, 200, "ssp/b")
	}
}

func TestNoFillIsNoAd(t *testing.T) {
	for _, mode := range []route.Mode{route.Waterfall, route.ParallelFirst} {
		m := newModeProxy(t, mode, nil, respondsWith("a", 500), respondsWith("b", 204))
		res, body := m.do("GET", "/fill")
		m.want(res, 204, "ssp/b")
		if body != "" || m.series("adbuffer_requests_total", "no_bid") != 1 || m.series("adbuffer_no_ad_total", "ssp") != 1 {
			t.Errorf("mode %s: body %q, and not counted as the SSP's no_bid", mode, body)
		}
		m = newModeProxy(t, mode, func(_ *proxy.Options, rt *route.Route) {
			rt.NoAdOnError, rt.Masked = true, route.Statuses{"4xx", "5xx"}
		}, respondsWith("a", 500), respondsWith("b", 404))
		res, _ = m.do("GET", "/fill")
		m.want(res, 204, "ssp/a")
		testsupport.True(t, m.series("adbuffer_requests_total", "server_error") == 1 && m.series("adbuffer_no_ad_total", "proxy") == 1, "mode %s: not counted as a replaced error", mode)
	}
}

func TestLegsCountAgainstMaxInFlight(t *testing.T) {
	m := newModeProxy(t, route.ParallelAll, func(o *proxy.Options, _ *route.Route) { o.MaxInFlight = 1 }, bids("a", "1"), bids("b", "2"))
	res, body := m.do("GET", "/fill")
	m.want(res, 200, "proxy/merged")
	testsupport.True(t, body == `{"results":[{"ssp":"a","error":"overloaded","ms":0},{"ssp":"b","error":"overloaded","ms":0}]}`, "envelope: %s", body)
	testsupport.Equal(t, m.p.InFlight(), 0, "%d are in flight")
}

// A panic costs the leg, not the process.
func TestLegThatPanicsIsCounted(t *testing.T) {
	m := newModeProxy(t, route.ParallelAll, nil, bidder{name: "a", handler: http.NotFound, broken: true}, bids("b", "{}"))
	res, body := m.do("GET", "/fill")
	m.want(res, 200, "proxy/merged")
	testsupport.True(t, strings.HasPrefix(body, `{"results":[{"ssp":"a","error":"internal","ms":0},{"ssp":"b","status":200,`), "envelope: %s", body)
	testsupport.Equal(t, m.series("adbuffer_panics_total", ""), 1, "%v panics are counted")
	testsupport.Equal(t, m.logs.FilterMessage("a leg of a request panicked").Len(), 1, "%d panics are logged")
}
