package app

import (
	"net/http"
	"net/netip"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/operate/admin"
	"adbuffer/internal/operate/adminview"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/setup/reload"
	"adbuffer/internal/wire/cpushare"
)

// adminOptions returns the options of the admin listener.
func (a *App) adminOptions() admin.Options {
	current := func() *config.Config { return a.versions.Current().Config }
	return admin.Options{
		Token: func() string { return current().Admin.Token.Reveal() }, TLS: tlsOf(a.certificates.admin, "http/1.1"), CPU: a.share, Metrics: a.metrics(),
		Ready: a.readiness, Level: a.process.Level, Log: a.log, Capture: a.views.Capture, ClearSample: a.clearSample, Requests: a.requests, Reload: a.process.Reload, DryRun: a.dryRun, Tried: a.lastTried,
		Explain:         func(m []byte, peer netip.Addr) any { return a.explain(m, peer) },
		MaxRequestBytes: func() int64 { s := current().Server; return int64(s.MaxHeaderBytes) + int64(s.MaxBodyBytes) },
		SSPs:            a.views, Routes: func() []string { return routeNames(current()) }, Pools: a.pools, Overview: a.overview, History: a.views.History, Config: func() []byte { return current().YAML() },
	}
}

// metrics returns the handler of /metrics. A scrape sees one config version.
func (a *App) metrics() http.Handler {
	gather := prometheus.GathererFunc(func() (all []*dto.MetricFamily, err error) {
		a.versions.Look(func(*reload.Version) { all, err = a.registry.Gather() })
		return all, err
	})
	return metrics.NewPage(gather, metrics.PageOptions{
		Errors: zap.NewStdLog(a.log),
		Acquire: func() (metrics.Turn, error) {
			turn, err := a.share.Acquire(cpushare.Scrape, 0, time.Now().Add(scrapePatience))
			return &turn, err
		},
	})
}

// scrapePatience is how long a scrape may wait for its turn to write the text of /metrics.
const scrapePatience = 5 * time.Second

func (a *App) pools(only string) any { return a.views.Pools(a.service(), a.proxy.Snapshot(), only) }

func (a *App) overview() any {
	return a.views.Overview(a.service(), a.proxy.Routes(), a.proxy.Limits(), a.proxy.Snapshot(), a.facts())
}

func (a *App) service() adminview.Service {
	now := time.Now()
	return adminview.Service{
		Version: Version, Commit: Commit, Go: runtime.Version(), State: stateNames[a.state.Load()], Listen: a.TrafficAddr().String(),
		Now: now, UptimeSeconds: now.Sub(a.started).Seconds(), Via: a.via, OpenFilesLimit: a.versions.Current().Config.Machine.OpenFiles,
	}
}

// facts returns what the notices of the overview are about.
func (a *App) facts() adminview.Facts {
	f := adminview.Facts{
		Draining: a.state.Load() == draining, LinesLost: a.process.Sink.Dropped(), Unrouted: a.proxy.Unrouted(adminview.UnroutedPaths),
	}
	add := func(setting, peers string, expiry time.Time) {
		f.Certificates = append(f.Certificates, adminview.Certificate{Setting: setting, Peers: peers, Expiry: expiry})
	}
	if c := a.certificates.server; c != nil {
		add("server.tls.cert_file", "clients", c.Expiry())
	}
	if c := a.certificates.admin; c != nil {
		add("admin.tls.cert_file", "operators and scrapers", c.Expiry())
	}
	if k := a.redisFiles; k != nil && k.Current().Certificate != nil {
		add("fleet.redis.tls.cert_file", "Redis servers", k.Current().Certificate.Leaf.NotAfter)
	}
	for _, p := range a.versions.Current().Parts {
		if expiry := p.CertificateExpiry(); !expiry.IsZero() {
			add("tls.cert_file of "+p.Config.Name, "SSPs", expiry)
		}
	}
	return f
}

// logInForce logs the limits in force that depend on the machine, if a reload has changed them.
func (a *App) logInForce(was, is *config.Config) {
	conns, held := is.MaxConnections(), is.MaxBufferedBytes()
	if conns != was.MaxConnections() || held != was.MaxBufferedBytes() {
		a.log.Info("limits in force", zap.Int("max_connections", conns.Value), zap.String("max_connections_from", conns.From()),
			zap.Int("max_buffered_bytes", held.Value), zap.String("max_buffered_bytes_from", held.From()))
	}
}

// logStart logs the start of the service, with the limits in force.
func (a *App) logStart() {
	cfg := a.versions.Current().Config
	s := &cfg.Server
	a.log.Info("starting", zap.String("version", Version), zap.String("commit", Commit),
		zap.Stringer("listen", a.TrafficAddr()), zap.Stringer("admin", a.AdminAddr()), zap.String("via", a.via),
		zap.Int("max_connections", cfg.MaxConnections().Value), zap.Int("max_in_flight", s.MaxInFlight), zap.Int("max_uploads", s.MaxUploads), zap.Int("max_streams_per_conn", s.MaxStreams), zap.Int("max_buffered_bytes", cfg.MaxBufferedBytes().Value),
		zap.Int("max_header_bytes", s.MaxHeaderBytes), zap.Int("max_body_bytes", s.MaxBodyBytes),
		zap.Duration("deadline_default", cfg.Deadline.Default), zap.Duration("deadline_max", cfg.Deadline.Max),
		zap.Int("routes", len(cfg.Routes)))
	for i := range cfg.SSPs {
		c := &cfg.SSPs[i]
		a.log.Info("ssp", zap.String("ssp", c.Name), zap.Strings("endpoints", c.ShownURLs()), zap.String("protocol", string(c.Protocol)),
			zap.Int("max_conns", c.Pool.MaxConns), zap.Int("max_http2_conns", c.Pool.MaxHTTP2Conns), zap.Int("min_idle", c.Pool.MinIdle),
			zap.Int("max_pending", c.Pool.MaxPending), zap.Duration("pending_timeout", c.Pool.PendingTimeout), zap.Int("max_dials", c.Pool.MaxDials),
			zap.Int("max_in_flight", c.MaxInFlight), zap.Duration("connect", c.Timeouts.Connect), zap.Duration("tls_handshake", c.Timeouts.TLSHandshake),
			zap.Int("max_response_bytes", c.MaxResponseBytes),
			zap.Int("max_buffered_bytes", c.BufferedBytesLimit(cfg.MaxBufferedBytes().Value)))
	}
}

func routeNames(cfg *config.Config) (names []string) {
	for i := range cfg.Routes {
		names = append(names, cfg.Routes[i].Name)
	}
	return names
}
