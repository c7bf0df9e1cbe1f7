package app

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/valyala/fasthttp"

	"adbuffer/internal/setup/config"
	"adbuffer/internal/setup/reload"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

func TestMain(m *testing.M) {
	var h fasthttp.ResponseHeader
	_ = h.Header() // starts fasthttp's date goroutine, which never ends
	testsupport.Main(m, goleak.IgnoreCurrent(),
		// sleeps for 10 s before it sees that its server has ended
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// patient bounds every wait; it passes only when something is broken.
const patient = testsupport.Patience

// service is a running App.
type service struct {
	t      *testing.T
	app    *App
	client *http.Client
	logs   *observer.ObservedLogs
	level  zap.AtomicLevel
	stop   context.CancelFunc
	ended  chan struct{} // is closed when Run has returned
}

// setup is a configuration in parts.
type setup struct {
	server, admin, log, more string // within the section's braces; more is whole sections
	ssps, routes             []string
	drain, read              string // server.drain.timeout and read_timeout; "" is 10 s
}

// yaml returns the whole configuration, with listeners on free ports and timeouts that a slow
// machine meets.
func (s setup) yaml() string {
	var b strings.Builder
	if !strings.Contains(s.server, "overload:") { // a slow machine refuses nothing
		s.server = strings.TrimPrefix(s.server+", overload: {enabled: false}", ", ")
	}
	fmt.Fprintf(&b, "server: {listen: \"127.0.0.1:0\", drain: {delay: 0s, timeout: %s}, read_timeout: %s%s}\n",
		cmp.Or(s.drain, "10s"), cmp.Or(s.read, "10s"), after(s.server))
	fmt.Fprintf(&b, "admin: {listen: \"127.0.0.1:0\"%s}\n", after(s.admin))
	if s.log != "" {
		fmt.Fprintf(&b, "log: {%s}\n", s.log)
	}
	if !strings.Contains(s.more, "deadline:") {
		b.WriteString("deadline: {default: 1m, max: 1m}\n")
	}
	b.WriteString("ssp_defaults: {timeouts: {connect: 1m, tls_handshake: 1m}, pool: {pending_timeout: 1m}}\n")
	b.WriteString(s.more + "\nssps:\n")
	for _, c := range s.ssps {
		b.WriteString("  - {" + c + "}\n")
	}
	b.WriteString("routes:\n")
	for _, r := range s.routes {
		b.WriteString("  - {" + r + "}\n")
	}
	return b.String()
}

func after(settings string) string {
	if settings == "" {
		return ""
	}
	return ", " + settings
}

func (s setup) load(t testing.TB) *config.Config {
	t.Helper()
	cfg, _, err := config.Parse([]byte(s.yaml()), nil)
	testsupport.MustTrue(t, err == nil, "%v in\n%s", err, s.yaml())
	return cfg
}

// run starts a service and waits until it is ready. At the end of the test the service is drained, which must cut
// no request.
func run(t *testing.T, s setup) *service {
	t.Helper()
	t.Parallel()
	return runAlone(t, s)
}

// runAlone is run for a test that measures the whole process.
func runAlone(t *testing.T, s setup) *service {
	t.Helper()
	return runWith(t, s, Process{})
}

func runWith(t *testing.T, s setup, process Process) *service {
	t.Helper()
	level := zap.NewAtomicLevelAt(zap.InfoLevel)
	core, logs := observer.New(level)
	process.Level = &level
	a, err := New(s.load(t), zap.New(core), process)
	testsupport.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	v := &service{
		t: t, app: a, logs: logs, level: level, stop: stop, ended: make(chan struct{}),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}, Timeout: patient},
	}
	var failed error
	go func() {
		defer close(v.ended)
		failed = a.Run(ctx, context.Background())
	}()
	t.Cleanup(func() {
		v.client.CloseIdleConnections()
		stop()
		<-v.ended
		testsupport.True(t, failed == nil, "the service ended with %v", failed)
	})
	v.await("the service is ready", a.Ready)
	return v
}

func (v *service) await(what string, ok func() bool) {
	v.t.Helper()
	testsupport.Eventually(v.t, what, ok)
}

// reload applies s.
func (v *service) reload(s setup) *reload.Report {
	v.t.Helper()
	r, err := v.app.Reload(v.t.Context(), s.load(v.t), new(reload.Trial))
	testsupport.MustTrue(v.t, err == nil, "the reload failed: %v", err)
	return r
}

// reloadOne is reload with one change, of this effect.
func (v *service) reloadOne(s setup, effect config.Effect) {
	v.t.Helper()
	all := v.reload(s).Changes
	testsupport.True(v.t, len(all) == 1 && all[0].Effect == effect, "the reload says %v, want one change %s", all, effect)
}

// pool returns the pool of the first SSP.
func (v *service) pool() *pool.Pool { return v.app.versions.Current().Parts[0].SSP.Pool() }

// response is the response that a request got.
type response struct {
	status       int
	body, source string
	err          error
}

func (v *service) send(method, path, body string) response {
	req, err := http.NewRequest(method, "http://"+v.app.TrafficAddr().String()+path, strings.NewReader(body))
	if err != nil {
		return response{err: err}
	}
	res, err := v.client.Do(req)
	if err != nil {
		return response{err: err}
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return response{res.StatusCode, string(b), res.Header.Get("X-Adbuffer-Source"), err}
}

func (v *service) get(path string) response { return v.send("GET", path, "") }

// wantFill checks that a response is a 200 of an SSP.
func wantFill(t *testing.T, got response, ssp string) {
	t.Helper()
	testsupport.True(t, got.status == 200 && got.source == "ssp/"+ssp, "got %+v, want 200 from %s", got, ssp)
}

// want checks that the response to path is a 200 of an SSP.
func (v *service) want(path, ssp string) {
	v.t.Helper()
	wantFill(v.t, v.get(path), ssp)
}

// admin gets path from the admin listener.
func (v *service) admin(path string) string {
	v.t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+v.app.AdminAddr().String()+path, nil)
	testsupport.NoError(v.t, err)
	req.Header.Set("Cache-Control", "no-cache") // otherwise /metrics may be a second old
	res, err := v.client.Do(req)
	testsupport.NoError(v.t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	testsupport.NoError(v.t, err)
	return string(b)
}

// metric returns the value of a series as /metrics writes it, "" for none.
func (v *service) metric(series string) string {
	v.t.Helper()
	for line := range strings.Lines(v.admin("/metrics")) {
		if value, ok := strings.CutPrefix(line, "adbuffer_"+series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func (v *service) wantMetric(series, value string) {
	v.t.Helper()
	testsupport.Equal(v.t, v.metric(series), value, "%[2]s is %[1]q", series)
}

// logged returns the log lines with that message, or at that level or above.
func (v *service) logged(level zapcore.Level) string {
	var b bytes.Buffer
	for _, e := range v.logs.All() {
		if e.Level >= level {
			fmt.Fprintln(&b, e.Message, e.ContextMap())
		}
	}
	return b.String()
}

// drained waits until all pools of earlier config versions are closed.
func (v *service) drained() {
	v.t.Helper()
	v.await("pools of earlier versions are drained", func() bool { return v.draining() == 0 })
}

// draining is how many pools drain after a reload.
func (v *service) draining() int {
	v.t.Helper()
	var families []*dto.MetricFamily
	var err error
	v.app.versions.Look(func(*reload.Version) { families, err = v.app.registry.Gather() })
	testsupport.NoError(v.t, err)
	for _, f := range families {
		if f.GetName() == "adbuffer_pools_draining" {
			return int(f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	v.t.Fatal("there is no adbuffer_pools_draining")
	return 0
}

// sim starts a simulated SSP that is closed at the end of the test.
func sim(t testing.TB, o sspsim.Options) *sspsim.SSP {
	t.Helper()
	s, err := sspsim.Start(o)
	testsupport.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// gate holds requests back at a simulated SSP.
type gate struct{ arrived, open chan struct{} }

func newGate() *gate { return &gate{make(chan struct{}, 1000), make(chan struct{})} }

func (g *gate) hold(*sspsim.Request) {
	g.arrived <- struct{}{}
	<-g.open
}

// inFlight sends n requests, which g holds back at the SSP.
func (v *service) inFlight(g *gate, path string, n int) chan response {
	responses := make(chan response, n)
	for range n {
		go func() { responses <- v.get(path) }()
	}
	for range n {
		<-g.arrived
	}
	return responses
}

// wantNoConnections waits until all connections to a simulated SSP are closed.
func wantNoConnections(t *testing.T, s *sspsim.SSP) {
	t.Helper()
	testsupport.True(t, s.AwaitCounters(patient, func(c sspsim.Counters) bool { return c.OpenConnections == 0 }), "%d connections to %s are open", s.Counters().OpenConnections, s.URL())
}

// rawConn is a client's connection, byte by byte.
type rawConn struct {
	t    *testing.T
	conn net.Conn
}

func (v *service) dial() *rawConn {
	v.t.Helper()
	c, err := net.Dial("tcp", v.app.TrafficAddr().String())
	testsupport.NoError(v.t, err)
	v.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patient))
	return &rawConn{v.t, c}
}

func (c *rawConn) write(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, s); err != nil {
		c.t.Fatal(err)
	}
}

// read returns the first bytes that arrive, at least the head.
func (c *rawConn) read() string {
	c.t.Helper()
	b := make([]byte, 4096)
	n, err := c.conn.Read(b)
	testsupport.NoError(c.t, err)
	return string(b[:n])
}
