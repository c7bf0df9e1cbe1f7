package app

import (
	"runtime"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/config"
	"adbuffer/internal/pool"
	"adbuffer/internal/sizing"
	"adbuffer/internal/ssp"
	"adbuffer/internal/upstream"
)

// poolView is one SSP as /pools shows it.
type poolView struct {
	pool.Snapshot
	Protocol    string                    `json:"protocol"`
	Connections map[string]map[string]int `json:"connections"` // by protocol and state
	Limits      limitsView                `json:"limits"`
	Requests    ssp.Snapshot              `json:"requests"`
	Endpoints   []string                  `json:"endpoints"`
	ReuseRatio  float64                   `json:"reuse_ratio"` // of the places lent, those that needed no new connection; 0 before the first
	Advice      string                    `json:"advice"`
	// IdleAdvice says which idle_timeout to set, where another is better.
	IdleAdvice string `json:"idle_advice,omitempty"`
}

// serviceView is the process.
type serviceView struct {
	Version       string    `json:"version"`
	Commit        string    `json:"commit"`
	Go            string    `json:"go"`
	State         string    `json:"state"` // starting, ready, draining
	Listen        string    `json:"listen"`
	Now           time.Time `json:"now"`
	UptimeSeconds float64   `json:"uptime_seconds"`
	ConfigHash    string    `json:"config_hash"`
	Via           string    `json:"via"` // the name of this process in Via
}

var stateNames = map[int32]string{starting: "starting", ready: "ready", draining: "draining"}

// limitsView are the limits in force.
type limitsView struct {
	MaxConns       int    `json:"max_conns"`
	MaxHTTP2Conns  int    `json:"max_http2_conns"`
	MinIdle        int    `json:"min_idle"`
	MaxIdle        int    `json:"max_idle"`
	IdleTimeout    string `json:"idle_timeout"`
	MaxAge         string `json:"max_age"`
	MaxRequests    int    `json:"max_requests_per_conn"`
	MaxPending     int    `json:"max_pending"`
	PendingTimeout string `json:"pending_timeout"`
	MaxDials       int    `json:"max_dials"`
	MaxStreams     int    `json:"max_streams_per_conn"`
	PipelineDepth  int    `json:"pipeline_depth"`
	MaxInFlight    int    `json:"max_in_flight"`
}

// poolViews is what /pools shows.
func (a *App) poolViews() any {
	a.seam.RLock()
	defer a.seam.RUnlock()
	g := a.current()
	views := make([]poolView, len(g.parts))
	for i, p := range g.parts {
		s := p.ssp
		snap, o := s.Pool().Snapshot(), s.Pool().Options()
		views[i] = poolView{
			Snapshot: snap, Protocol: snap.Protocol.String(), Connections: connectionsView(&snap),
			Limits: limitsView{
				MaxConns: o.MaxConns, MaxHTTP2Conns: o.MaxHTTP2Conns, MinIdle: o.MinIdle, MaxIdle: o.MaxIdle,
				IdleTimeout: o.IdleTimeout.String(), MaxAge: o.MaxAge.String(), MaxRequests: o.MaxRequests,
				MaxPending: o.MaxPending, PendingTimeout: o.PendingTimeout.String(), MaxDials: o.MaxDials,
				MaxStreams: o.MaxStreams, PipelineDepth: o.PipelineDepth, MaxInFlight: s.MaxInFlight(),
			},
			Requests: s.Snapshot(), Endpoints: config.HideURLs(p.cfg.Endpoints), ReuseRatio: reuseRatio(&snap),
			Advice: sizing.Advice(&snap, &o), IdleAdvice: sizing.IdleAdvice(&snap, &o),
		}
	}
	now := time.Now()
	return map[string]any{
		"service": serviceView{
			Version: Version, Commit: Commit, Go: runtime.Version(), State: stateNames[a.state.Load()], Listen: a.TrafficAddr().String(),
			Now: now, UptimeSeconds: now.Sub(a.started).Seconds(), ConfigHash: a.hash.of(g.cfg), Via: a.via,
		},
		"totals": a.proxy.Snapshot(),
		"pools":  views,
	}
}

// hashed remembers the hash of a configuration, which takes milliseconds to make
// where there are many SSPs.
type hashed struct {
	last atomic.Pointer[struct {
		cfg  *config.Config
		hash string
	}]
}

func (h *hashed) of(cfg *config.Config) string {
	if l := h.last.Load(); l != nil && l.cfg == cfg {
		return l.hash
	}
	l := &struct {
		cfg  *config.Config
		hash string
	}{cfg, cfg.Hash()}
	h.last.Store(l)
	return l.hash
}

// reuseRatio counts as the recording rules do: warming up opens more than is
// lent, which is no reuse, not less.
func reuseRatio(s *pool.Snapshot) float64 {
	if s.Lent == 0 {
		return 0
	}
	return max(0, 1-float64(s.Opened)/float64(s.Lent))
}

func connectionsView(s *pool.Snapshot) map[string]map[string]int {
	all := make(map[string]map[string]int)
	for p := upstream.HTTP1; p < upstream.Protocols; p++ {
		all[p.String()] = map[string]int{"idle": s.Idle[p], "active": s.Active[p], "draining": s.Draining[p]}
	}
	return all
}

// logStart writes what is in force, so that nobody meets a limit that was never
// shown.
func (a *App) logStart() {
	cfg := a.current().cfg
	s := &cfg.Server
	a.log.Info("starting", zap.String("version", Version), zap.String("commit", Commit),
		zap.Stringer("listen", a.TrafficAddr()), zap.Stringer("admin", a.AdminAddr()), zap.String("via", a.via),
		zap.Int("max_connections", s.MaxConnections), zap.Int("max_in_flight", s.MaxInFlight), zap.Int("max_uploads", s.MaxUploads), zap.Int("max_buffered_bytes", s.MaxBufferedBytes),
		zap.Int("max_header_bytes", s.MaxHeaderBytes), zap.Int("max_body_bytes", s.MaxBodyBytes),
		zap.Duration("deadline_default", cfg.Deadline.Default), zap.Duration("deadline_max", cfg.Deadline.Max),
		zap.Int("routes", len(cfg.Routes)))
	for i := range cfg.SSPs {
		c := &cfg.SSPs[i]
		a.log.Info("ssp", zap.String("ssp", c.Name), zap.Strings("endpoints", config.HideURLs(c.Endpoints)), zap.String("protocol", string(c.Protocol)),
			zap.Int("max_conns", c.Pool.MaxConns), zap.Int("max_http2_conns", c.Pool.MaxHTTP2Conns), zap.Int("min_idle", c.Pool.MinIdle),
			zap.Int("max_pending", c.Pool.MaxPending), zap.Duration("pending_timeout", c.Pool.PendingTimeout), zap.Int("max_dials", c.Pool.MaxDials),
			zap.Int("max_in_flight", c.MaxInFlight), zap.Duration("connect", c.Timeouts.Connect), zap.Duration("tls_handshake", c.Timeouts.TLSHandshake),
			zap.Int("max_response_bytes", c.MaxResponseBytes), zap.Int("max_response_fields", c.MaxResponseFields),
			zap.Int("max_buffered_bytes", c.BufferedBytesLimit(s.MaxBufferedBytes)))
	}
}
