// Package admin is metrics, health, pools, the page: the listener for operators
// and their tools, apart from the traffic.
package admin

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
)

// Options are what the admin listener shows and how it guards it. A func that is
// nil takes its path away.
type Options struct {
	// Token returns what opens everything on a listener beyond loopback: nothing
	// does while it is empty. It may change.
	Token func() string
	// TLS, where not nil, is what the listener speaks. A client certificate that
	// it has verified opens what the token opens; it must let clients without one
	// in (tls.VerifyClientCertIfGiven), for what needs neither.
	TLS *tls.Config
	// Metrics is what /metrics gathers.
	Metrics prometheus.Gatherer
	// Ready answers /readyz: nil, or why not.
	Ready func() error
	// Pools and History return what /pools and /history show, to be written as
	// JSON. The page draws itself from them.
	Pools, History func() any
	// Config returns the effective configuration, YAML without secrets.
	Config func() []byte
	// Level is the level of the log, which PUT /log/level changes.
	Level *zap.AtomicLevel
	// Capture waits for exchanges with an SSP; see the type.
	Capture Capture
	// Reload reads the configuration again; see the type.
	Reload Reload
	Log    *zap.Logger
}

// Server is the admin listener's server. net/http is fast enough for it.
type Server struct {
	opts     Options
	server   *http.Server
	loopback bool
	stop     context.CancelFunc // ends what waits for something
}

// New returns a server for l's address; Serve runs it.
func New(opts Options, l net.Listener) *Server {
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{opts: opts, loopback: isLoopback(l.Addr()), stop: stop}
	s.server = &http.Server{
		Handler:           s.handler(),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          zap.NewStdLog(opts.Log.WithOptions(zap.IncreaseLevel(zap.ErrorLevel))),
	}
	return s
}

// Serve answers until Close. It returns nil after that, or why l failed.
func (s *Server) Serve(l net.Listener) error {
	if s.opts.TLS != nil {
		l = tls.NewListener(l, s.opts.TLS)
	}
	if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// StandBy has clients move on to another process that accepts from the same
// socket: idle connections are closed, and others after their answer. StandBy
// (false) ends that.
func (s *Server) StandBy(on bool) { s.server.SetKeepAlivesEnabled(!on) }

// Close stops at once where ctx has ended, and else lets answers under way
// finish.
func (s *Server) Close(ctx context.Context) {
	s.stop()
	if s.server.Shutdown(ctx) != nil {
		s.server.Close() //nolint:errcheck // nothing is left to be done about it
	}
}

func (s *Server) handler() http.Handler {
	open := http.NewServeMux() // needs no token anywhere
	open.Handle("GET /metrics", promhttp.HandlerFor(s.opts.Metrics, promhttp.HandlerOpts{
		ErrorLog: zap.NewStdLog(s.opts.Log), ErrorHandling: promhttp.ContinueOnError,
	}))
	open.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "alive") })
	open.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.opts.Ready(); err != nil {
			text(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		text(w, http.StatusOK, "ready")
	})
	open.Handle("/", s.guard(s.guarded()))
	return s.guardHost(open)
}

// guarded is what shows or changes more than a monitoring system needs.
func (s *Server) guarded() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", servePage)
	for path, view := range map[string]func() any{"GET /pools": s.opts.Pools, "GET /history": s.opts.History} {
		if view != nil {
			mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, view()) })
		}
	}
	if s.opts.Config != nil {
		mux.HandleFunc("GET /config", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, string(s.opts.Config())) })
	}
	if s.opts.Level != nil {
		mux.HandleFunc("GET /log/level", s.showLevel)
		mux.HandleFunc("PUT /log/level", s.changeLevel)
	}
	mux.HandleFunc("GET /capture", s.capture)
	if s.opts.Reload != nil {
		mux.HandleFunc("POST /reload", s.reload)
	}
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

func text(w http.ResponseWriter, status int, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	if s == "" || s[len(s)-1] != '\n' {
		s += "\n"
	}
	w.Write([]byte(s)) //nolint:errcheck // the client has gone
}

func writeJSON(w http.ResponseWriter, v any) {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		text(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(append(b, '\n')) //nolint:errcheck // the client has gone
}
