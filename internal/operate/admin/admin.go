// Package admin is the listener for operators and their tools: metrics, health, pools,
// the page.
package admin

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/setup/reload"
	"adbuffer/internal/wire/cpushare"
	"adbuffer/internal/wire/logs"
)

// Options are the views of the admin listener and the rules for access to them.
type Options struct {
	// Token returns the token that gives a peer beyond loopback access to all paths. If it returns "",
	// no token gives access. The token may change between two calls.
	Token func() string
	// TLS is nil for cleartext. A client certificate that TLS has verified gives the same access as
	// the token. TLS must accept clients without a certificate (tls.VerifyClientCertIfGiven), because
	// some paths need none.
	TLS *tls.Config
	// CPU bounds the CPU of TLS handshakes; nil = no bound.
	CPU *cpushare.Share
	// Metrics serves /metrics.
	Metrics http.Handler
	// Ready returns nil if the service is ready, or else the reason that /readyz shows.
	Ready func() error
	// Overview, Pools and History return the values that /overview, /pools and /history show as JSON. The
	// tables of the page are drawn from /overview. ssp is the name of an SSP, or "" for all SSPs.
	Overview       func() any
	Pools, History func(ssp string) any
	// Config returns the effective configuration as YAML without secrets.
	Config func() []byte
	// ClearSample empties the sample of the traffic.
	ClearSample func()
	// Level is the log's level, which PUT /log/level changes.
	Level *zap.AtomicLevel
	// Capture returns, as a value for JSON, the next n exchanges with an SSP, or fewer if ctx ends first.
	// Its errors are ErrCaptureBusy, ErrCaptureOff, and *UnknownError for an unknown SSP.
	Capture func(ctx context.Context, ssp string, n int) (any, error)
	// SSPs are listed and changed under /ssps.
	SSPs SSPs
	// Routes returns the names of the routes in force.
	Routes func() []string
	// Requests has the last failures, and reports requests as they end.
	Requests *logs.RequestLog
	// Explain returns, as a value for JSON, how adbuffer would handle message: one HTTP/1.1 request from a
	// client at peer. No SSP gets the request.
	Explain func(message []byte, peer netip.Addr) any
	// MaxRequestBytes returns the limit on the length of a client's request, head and body together.
	MaxRequestBytes func() int64
	// Reload reads the configuration file again and applies it after the trial; nil = there is no file. It returns the
	// status of the response, and a value for its JSON body: what changed, or the errors.
	Reload func(context.Context, reload.Trial) (status int, report any)
	// Tried returns the report of the last dry run with the traffic, or of the last reload that was tried on it.
	Tried func() string
	// DryRun returns in the same form what a reload of document would do and, if traffic is true, what it would do to the
	// sampled traffic. It changes nothing.
	DryRun func(ctx context.Context, document []byte, traffic bool) (status int, report any)
	Log    *zap.Logger
}

// Server serves the admin listener with net/http.
type Server struct {
	opts     Options
	server   *http.Server
	loopback bool
	stop     context.CancelFunc // ends captures and other requests that wait
	tails    atomic.Int32       // responses to /tail in progress

	connections connections
}

// New returns a server for l's address; Serve runs it.
func New(opts Options, l net.Listener) *Server {
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{opts: opts, loopback: isLoopback(l.Addr()), stop: stop}
	s.server = &http.Server{
		Handler:           s.handler(),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       s.connections.accept,
		ConnState:         s.connections.changed,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          zap.NewStdLog(opts.Log.WithOptions(zap.IncreaseLevel(zap.ErrorLevel))),
	}
	return s
}

// Serve serves l until Close, and then returns nil. An error means that l failed.
func (s *Server) Serve(l net.Listener) error {
	if s.opts.TLS != nil {
		l = &tlsListener{l, s.opts.TLS, s.opts.CPU}
	}
	if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// StandBy(true) makes clients reconnect, so that they reach another process that accepts from the same
// socket: idle connections are closed at once, and other connections after their response.
// StandBy(false) lets clients keep their connections again.
func (s *Server) StandBy(on bool) { s.server.SetKeepAlivesEnabled(!on) }

// Close waits for responses in progress until ctx ends, and then closes all connections.
func (s *Server) Close(ctx context.Context) {
	s.stop()
	if s.server.Shutdown(ctx) != nil {
		s.server.Close()
	}
}

func (s *Server) handler() http.Handler {
	open := http.NewServeMux() // the paths that need neither token nor certificate
	open.Handle("GET /metrics", s.connections.limitScrapes(s.cachedScrapes(s.opts.Metrics)))
	open.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "alive") })
	open.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.opts.Ready(); err != nil {
			text(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		text(w, http.StatusOK, "ready")
	})
	open.Handle("/", s.guard(s.guarded()))
	return s.connections.noteRequests(bounded(s.guardHost(open)))
}

// guarded serves the paths that need access: they show or change more than a monitoring system needs.
func (s *Server) guarded() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", servePage)
	mux.HandleFunc("GET /overview", func(w http.ResponseWriter, _ *http.Request) {
		b, err := json.Marshal(s.opts.Overview()) // without blanks: the page reads it each second
		sendJSON(w, http.StatusOK, b, err)
	})
	mux.HandleFunc("GET /pools", respond(func(r *http.Request) (any, error) { return s.opts.Pools(r.FormValue("ssp")), nil }))
	mux.HandleFunc("GET /history", respond(func(r *http.Request) (any, error) { return s.opts.History(r.FormValue("ssp")), nil }))
	mux.HandleFunc("GET /config", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, string(s.opts.Config())) })
	mux.HandleFunc("GET /log/level", respond(s.showLevel))
	mux.HandleFunc("PUT /log/level", respond(s.changeLevel))
	mux.HandleFunc("GET /ssps", respond(func(*http.Request) (any, error) { return s.opts.SSPs.States(), nil }))
	mux.HandleFunc("PUT /ssps/{ssp}/state", respond(s.changeSSP("state")))
	mux.HandleFunc("PUT /ssps/{ssp}/endpoints/{endpoint}/state", respond(s.changeSSP("state")))
	mux.HandleFunc("PUT /ssps/{ssp}/endpoints/{endpoint}/weight", respond(s.changeSSP("weight")))
	mux.HandleFunc("GET /capture", respond(s.capture))
	mux.HandleFunc("PUT /sample", respond(s.changeSample))
	mux.HandleFunc("GET /failures", respond(func(*http.Request) (any, error) { // the last one first
		return map[string]any{"failures": s.opts.Requests.Failures()}, nil
	}))
	mux.HandleFunc("GET /tail", s.tail)
	mux.HandleFunc("POST /explain", respond(s.explain))
	mux.HandleFunc("GET /reload", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, s.opts.Tried()) })
	mux.HandleFunc("POST /reload", s.reload)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}
