// Package admin is metrics, health, pools, the page: the listener for operators
// and their tools, apart from the traffic.
package admin

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
)

// Options are what the admin listener shows and how it guards it.
type Options struct {
	// Token, where not empty, opens everything on a listener beyond loopback.
	Token string
	// Metrics is what /metrics gathers.
	Metrics prometheus.Gatherer
	// Ready answers /readyz: nil, or why not.
	Ready func() error
	// Pools returns what /pools shows, to be written as JSON.
	Pools func() any
	Log   *zap.Logger
}

// Server is the admin listener's server. net/http is fast enough for it.
type Server struct {
	opts     Options
	server   *http.Server
	loopback bool
}

// New returns a server for l's address; Serve runs it.
func New(opts Options, l net.Listener) *Server {
	s := &Server{opts: opts, loopback: isLoopback(l.Addr())}
	s.server = &http.Server{
		Handler:           s.handler(),
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
	if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close stops at once where ctx has ended, and else lets answers under way
// finish.
func (s *Server) Close(ctx context.Context) {
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

	guarded := http.NewServeMux()
	guarded.HandleFunc("GET /pools", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.opts.Pools()) })
	guarded.HandleFunc("GET /debug/pprof/", pprof.Index)
	guarded.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	guarded.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	guarded.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	guarded.HandleFunc("GET /debug/pprof/trace", pprof.Trace)

	open.Handle("/", s.guard(guarded))
	return s.guardHost(open)
}

// guard lets a request through that may see everything: on loopback any, and
// elsewhere one with the token.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.loopback && !s.hasToken(r) {
			text(w, http.StatusForbidden, "this needs the token of admin.token_file (Authorization: Bearer …)")
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

func (s *Server) hasToken(r *http.Request) bool {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && s.opts.Token != "" && subtle.ConstantTimeCompare([]byte(token), []byte(s.opts.Token)) == 1
}

// guardHost refuses, on loopback, a Host that is not loopback: a page in an
// operator's browser must not reach us by a name of its own (DNS rebinding).
func (s *Server) guardHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.loopback && !isLoopbackHost(r.Host) {
			text(w, http.StatusForbidden, "this listener is for loopback; ask it as localhost, 127.0.0.1 or [::1]")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isLoopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return !ok || t.IP.IsLoopback()
}

func isLoopbackHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

func text(w http.ResponseWriter, status int, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	w.Write([]byte(s + "\n")) //nolint:errcheck // the client has gone
}

func writeJSON(w http.ResponseWriter, v any) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		text(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(append(b, '\n')) //nolint:errcheck // the client has gone
}
