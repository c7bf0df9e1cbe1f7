// Package admin is the listener for operators and their tools: metrics, health, pools,
// the page.
package admin

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/logs"
)

// Options are the views of the admin listener and the rules for access to them.
type Options struct {
	// Token returns the token that gives access to all paths beyond loopback. If it is "", no token
	// does. Two calls may return different tokens.
	Token func() string
	// TLS is nil for cleartext. A client certificate that TLS has verified gives the
	// access that the token gives. TLS must accept clients without a certificate
	// (tls.VerifyClientCertIfGiven), because some paths need none.
	TLS *tls.Config
	// Metrics serves /metrics.
	Metrics http.Handler
	// Ready returns nil if the service is ready, or else the reason for /readyz.
	Ready func() error
	// Overview returns the JSON of /overview, from which the page's tables are drawn. Pools and History
	// return that of /pools and /history, of one SSP or of all for "".
	Overview       func() any
	Pools, History func(ssp string) any
	// Config returns the effective configuration as YAML without secrets.
	Config func() []byte
	// Level is the log's level, which PUT /log/level changes.
	Level *zap.AtomicLevel
	// Capture waits for exchanges with an SSP.
	Capture Capture
	// Trace is the flight recorder.
	Trace Trace
	// SSPs are listed and changed under /ssps.
	SSPs SSPs
	// Routes returns the names of the routes in force.
	Routes func() []string
	// Requests has the last failures, and reports requests as they end.
	Requests *logs.RequestLog
	// Explain says how a request would be handled.
	Explain Explain
	// MaxRequestBytes returns the limit of a client's request, head and body.
	MaxRequestBytes func() int64
	// Reload reads the configuration again. nil: it has no file.
	Reload Reload
	// DryRun says what a reload would do.
	DryRun DryRun
	Log    *zap.Logger
}

// Server is the admin listener's server. net/http is fast enough for it.
type Server struct {
	opts     Options
	server   *http.Server
	loopback bool
	stop     context.CancelFunc // ends captures and other requests that wait
	tails    atomic.Int32       // open

	connections connections
	scrapes     scrapes
}

// New returns a server for l's address; Serve runs it.
func New(opts Options, l net.Listener) *Server {
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{opts: opts, loopback: isLoopback(l.Addr()), stop: stop, scrapes: scrapes{places: make(chan struct{}, maxScrapes)}}
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

// Serve serves l until Close, and returns nil then. An error means that l failed.
func (s *Server) Serve(l net.Listener) error {
	if s.opts.TLS != nil {
		l = tls.NewListener(l, s.opts.TLS)
	}
	if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// StandBy makes clients move to another process that accepts from the same socket: it
// closes idle connections at once and other connections after their response.
// StandBy(false) ends that.
func (s *Server) StandBy(on bool) { s.server.SetKeepAlivesEnabled(!on) }

// Close waits for responses in progress until ctx ends, and then closes all connections.
func (s *Server) Close(ctx context.Context) {
	s.stop()
	if s.server.Shutdown(ctx) != nil {
		s.server.Close()
	}
}

func (s *Server) handler() http.Handler {
	open := http.NewServeMux() // needs no token anywhere
	open.Handle("GET /metrics", s.scrapes.limit(s.opts.Metrics))
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

// guarded serves the paths that show or change more than a monitoring system needs.
func (s *Server) guarded() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", servePage)
	mux.HandleFunc("GET /overview", func(w http.ResponseWriter, _ *http.Request) { writeCompactJSON(w, s.opts.Overview()) })
	mux.HandleFunc("GET /pools", func(w http.ResponseWriter, r *http.Request) { writeJSON(w, s.opts.Pools(r.FormValue("ssp"))) })
	mux.HandleFunc("GET /history", func(w http.ResponseWriter, r *http.Request) { writeJSON(w, s.opts.History(r.FormValue("ssp"))) })
	mux.HandleFunc("GET /config", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, string(s.opts.Config())) })
	mux.HandleFunc("GET /log/level", s.showLevel)
	mux.HandleFunc("PUT /log/level", s.changeLevel)
	mux.HandleFunc("GET /ssps", s.listSSPs)
	mux.HandleFunc("PUT /ssps/{ssp}/state", s.changeSSP("state"))
	mux.HandleFunc("PUT /ssps/{ssp}/endpoints/{endpoint}/state", s.changeSSP("state"))
	mux.HandleFunc("PUT /ssps/{ssp}/endpoints/{endpoint}/weight", s.changeSSP("weight"))
	mux.HandleFunc("GET /capture", s.capture)
	mux.HandleFunc("GET /debug/trace", s.trace)
	mux.HandleFunc("GET /failures", s.failures)
	mux.HandleFunc("GET /tail", s.tail)
	mux.HandleFunc("POST /explain", s.explain)
	mux.HandleFunc("POST /reload", s.reload)
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
	io.WriteString(w, strings.TrimSuffix(s, "\n")+"\n") //nolint:errcheck // the client has left
}

func writeJSON(w http.ResponseWriter, v any) { writeStatusJSON(w, http.StatusOK, v) }

func writeStatusJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.MarshalIndent(v, "", " ")
	sendJSON(w, status, b, err)
}

// writeCompactJSON is writeJSON without blanks, for what a page reads each second.
func writeCompactJSON(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	sendJSON(w, http.StatusOK, b, err)
}

func sendJSON(w http.ResponseWriter, status int, b []byte, err error) {
	if err != nil {
		text(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(b, '\n'))
}
