package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"adbuffer/internal/test/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

// nginx closes a connection after perConnection requests (keepalive_requests), and if it is idle for a second
// (keepalive_timeout). The clients of each way pause once for longer.
const (
	perConnection = 1000
	pause         = 1800 * time.Millisecond
)

// way is a protocol and a pool with which adbuffer sends requests to nginx.
type way struct {
	name     string
	protocol string // in adbuffer's configuration
	speaks   string // the protocol that adbuffer must use, as its metrics name it
	conns    int    // max_conns; fewer if a run is too short for so many
	pool     string // further keys
	tls      bool
	clients  int // connections to adbuffer, a request at a time on each
}

// Each way has more clients than places, so that requests queue and pipelines are full.
var ways = []way{
	{name: "HTTP/1", protocol: "http1", speaks: "http1", conns: 32, clients: 64},
	{name: "HTTP/1 pipelined, depth 8", protocol: "http1-pipelined", speaks: "http1-pipelined", conns: 8,
		pool: "pipeline_depth: 8, ", clients: 96},
	{name: "HTTP/1 pipelined, depth 64", protocol: "http1-pipelined", speaks: "http1-pipelined",
		conns: 3, pool: "pipeline_depth: 64, pipeline_methods: all, ", clients: 256},
	{name: "HTTP/1 over TLS", protocol: "http1", speaks: "http1", conns: 32, tls: true, clients: 64},
	{name: "HTTP/2 over TLS, by ALPN", protocol: "auto", speaks: "http2", conns: 4, tls: true,
		clients: 256},
}

// A response has the number of its request in the header and at the start of the body. The length of
// the body depends on the method.
const (
	soakHTTP  = `log_format account '$arg_cb $connection_requests'; http2_max_concurrent_streams 128; keepalive_requests %d; ssl_session_cache shared:s:2m;`
	soakServe = `access_log %s account buffer=64k flush=1s; keepalive_timeout 1s;
		location / {
			add_header X-Echo-Cb $arg_cb;
			return 200 '$arg_cb {"id":"$arg_cb","method":"$request_method","seatbid":[{"bid":[{"id":"1","impid":"1","price":0.5,"adm":"$request_uri"}]}]}';
		}`
)

// soaked has the counts of the generator, adbuffer and nginx for one way.
type soaked struct {
	*rig.Figures
	account
	opened, speaking, again float64  // adbuffer's connections, those of them that speak the way's protocol, and its retries
	errors                  []string // what adbuffer says of some requests that failed
}

// soakCommand returns the command that sends n requests each way to a real nginx, which closes connections all the
// time, and accounts for each request.
func soakCommand() Command {
	n := 0
	return Command{Name: "soak", Short: "A million requests each way to a real nginx, every one accounted for",
		Question: "Does each response reach its own request, and does each request reach the SSP exactly once, while a real nginx closes its connections all the time?",
		Long: `Sends a million requests each over HTTP/1, HTTP/1 pipelined at depth 8 and at depth 64,
HTTP/1 over TLS, and HTTP/2 through adbuffer to an nginx that closes connections after 1 000 requests and
after a second without one. Each way has a pause of 1.8 s.
Each response must carry its request's number, and nginx's log each number exactly once;
the exit status is 1 if one does not. An nginx that gets no CPU for a second resets connections
whose requests it has not read; adbuffer does not repeat POSTs then, and they fail.
It needs nginx.`,
		Test:    func(e *rig.Rig) { soak(e, n) },
		Example: "  go run ./loadtest soak --requests 1000000\n  go run ./loadtest soak --scale 0.01 --json",
		Flags: func(f *pflag.FlagSet) {
			f.IntVar(&n, "requests", 0, "requests each way; default: a million times --scale")
		},
		Check: func(f *pflag.FlagSet) error {
			if n < 0 || f.Changed("requests") && n == 0 {
				return errors.New("--requests: must be at least 1")
			}
			return nil
		},
	}
}

func soak(e *rig.Rig, n int) {
	if n == 0 {
		n = e.Count(1_000_000, 2*perConnection)
	}
	count := results.Number(float64(n))
	r := e.Rep
	e.Needs("nginx")
	r.Note("adbuffer, nginx and the generator share all cores; what is measured is that nothing is lost, mixed up " +
		"or repeated, not speed.")
	r.Note("adbuffer sends a request again if nginx closed its connection before it processed the request.")
	t := r.Table(fmt.Sprintf("%s requests each way, a quarter of them POSTs, to nginx with keepalive_requests %d",
		count, perConnection),
		"way", "answered with their number", "failed", "reached nginx once", "more often", "never", "connections",
		"sent again", "requests/s", "p99 ms", "adbuffer memory")
	for _, w := range ways {
		e.Next("soak: %s requests over %s", count, w.name)
		out := w.soak(e, n)
		t.Add(out.Doubts, w.name, out.Answered, out.Failed, float64(out.once), out.twice, out.never,
			float64(out.connections), out.again, out.Rate, out.Latency.P99, results.MiB(out.RSS))
		judgeSoak(r, w, n, out)
	}
}

// soak sends n requests this way, to an nginx that gets no other requests.
func (w way) soak(e *rig.Rig, n int) (out soaked) {
	conns := min(w.conns, max(1, n/(4*perConnection)))
	ssp := &rig.SSP{Name: "nginx", Protocol: w.protocol,
		Pool: w.pool + limits(conns, 4096, "20s") + fmt.Sprintf(", max_http2_conns: %d", conns)}
	log := e.Write("soak-*.log", "")
	nginx := &rig.Route{Name: "soak", Serve: fmt.Sprintf(soakServe, log)}
	scheme := "http://"
	if w.tls {
		cert := e.Certificate("soak", "127.0.0.1")
		scheme, nginx.TLS, ssp.CAFile = "https://", cert, cert.CA
	}
	e.StartProgram("nginx", "", fmt.Sprintf(soakHTTP, perConnection), nginx)
	defer nginx.Process.Stop()
	ssp.URLs = []string{scheme + nginx.Addr + "/bid"}
	s := e.Start(rig.Setup{SSPs: []*rig.SSP{ssp}, Anywhere: true, Config: rig.Config{Deadline: "30s"}})
	defer s.Stop()
	plan := rig.ClosedLoop(w.clients, n, 12*time.Hour,
		load.Template{Name: "GET", Method: "GET", Path: "/fillbuffer?cb=" + load.Number, Weight: 3},
		load.Template{Name: "POST", Method: "POST", Path: "/fillbuffer?cb=" + load.Number, JSON: true,
			Body: sspsim.Size{P50: 1300, P95: 3000}})
	plan.Echo, plan.EchoBody, plan.Pause = true, true, pause
	done, printed := 0, 0
	out.Figures = s.Measure(rig.GenerateWatched(plan, false, func(p load.Progress) {
		done += int(p.Answered)
		if tenth := done * 10 / n; tenth > printed && tenth < 10 {
			printed = tenth
			e.Say("soak: %s: %d responses, %d errors in the last second", w.name, done, p.Errors)
		}
	}))
	const opened = "adbuffer_pool_connections_opened_total"
	out.opened = s.Adbuffer.Metric(opened)
	out.speaking = s.Adbuffer.Metric(opened, fmt.Sprintf("protocol=%q", w.speaks))
	out.again = s.Adbuffer.Metric("adbuffer_retries_total")
	if out.Failed > 0 {
		out.errors = rig.Must(lastErrors(s.Adbuffer))(e)
	}
	// nginx writes the rest of its log when it exits.
	s.Stop()
	nginx.Process.Stop()
	file := rig.Must(os.Open(log))(e)
	defer file.Close()
	out.account = rig.Must(readLog(file, n))(e)
	return out
}

// lastErrors returns the different errors among the last failures of a, at most maxExamples.
func lastErrors(a *rig.Adbuffer) ([]string, error) {
	text, err := a.Ask("/failures")
	if err != nil {
		return nil, err
	}
	var last struct {
		Failures []struct {
			Method, Error string
			Attempts      int
		}
	}
	if err := json.Unmarshal([]byte(text), &last); err != nil {
		return nil, fmt.Errorf("/failures: %w", err)
	}
	var errs []string
	for _, f := range last.Failures {
		if e := fmt.Sprintf("%s sent %d times: %s", f.Method, f.Attempts, f.Error); len(errs) < maxExamples && !slices.Contains(errs, e) {
			errs = append(errs, e)
		}
	}
	return errs, nil
}

func judgeSoak(r *results.Report, w way, n int, s soaked) {
	violations := s.violations(w, n)
	figures := strings.Join(violations, "; ") + "."
	if len(violations) == 0 {
		figures = fmt.Sprintf("%s of %s, over %s connections of at most %d requests; %s requests were sent again, "+
			"since nginx had closed before it processed them.",
			results.Number(float64(s.once)), results.Number(float64(n)), results.Number(float64(s.connections)),
			s.longest, results.Number(s.again))
	}
	r.Promise(w.name+": every request gets its own response, and reaches the SSP exactly once", len(violations) == 0,
		nil, "%s", figures)
}

// violations returns why the requests are not all accounted for.
func (s soaked) violations(w way, n int) (out []string) {
	check := func(broken bool, format string, args ...any) {
		if broken {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	check(s.Answered != uint64(n) || s.Failed > 0, "%d of %d got a response with their number, %s", s.Answered, n,
		s.Failures())
	check(len(s.errors) > 0, "the last errors: %q", s.errors)
	check(s.twice > 0, "%d reached nginx more than once, such as %v", s.twice, s.repeated)
	check(s.never > 0, "%d never reached nginx", s.never)
	check(s.foreign > 0, "nginx saw %d requests that no client sent, such as %q", s.foreign, s.stranger)
	check(s.opened > s.speaking, "%.0f of %.0f connections do not speak %s", s.opened-s.speaking, s.opened, w.speaks)
	// Unless nginx closes connections, the test shows nothing. After the pause, up to 128 streams may end before the
	// first one of their connection.
	check(s.longest > perConnection || n >= 4*perConnection && s.longest < perConnection,
		"nginx closed no connection after %d requests: %d of them carried up to %d", perConnection, s.connections,
		s.longest)
	check(s.afterPause > 128, "nginx closed no connection in the pause: the first request after it was number %d on its connection", s.afterPause)
	return out
}
