package app

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"adbuffer/internal/config"
	"adbuffer/internal/dial"
	"adbuffer/internal/fleet"
	"adbuffer/internal/httpheader"
	"adbuffer/internal/listen"
	"adbuffer/internal/pool"
	"adbuffer/internal/proxy"
	"adbuffer/internal/route"
	"adbuffer/internal/ssp"
	"adbuffer/internal/tracing"
	"adbuffer/internal/upstream"
)

// build makes every part but the listeners.
func (a *App) build(cfg *config.Config) error {
	if err := a.loadCertificates(cfg); err != nil {
		return err
	}
	if err := a.startFleet(&cfg.Fleet); err != nil {
		return err
	}
	none := &generation{cfg: new(config.Config)}
	p, err := a.plan(none, cfg)
	if err != nil {
		a.leaveFleet()
		return err
	}
	g := p.carryOut(none)
	a.generation.Store(g)
	a.awaitFirstLease()
	a.observers.trace(g)
	a.proxy = proxy.New(a.proxyOptions(cfg), g.table, a.peers.Logger(), a.Ready)
	a.info = newInfo(a.hash.of(cfg), a.started, &a.retiring)
	a.registry = prometheus.NewRegistry()
	all := []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		pool.NewCollector(func() []*pool.Pool { return a.current().pools }),
		ssp.NewCollector(func() []*ssp.SSP { return a.current().ssps }),
		connCollector{func() []*dialer { return a.current().dialers }},
		fleet.NewCollector(func() *fleet.Fleet { return a.fleet }),
		spanCollector{func() *tracing.Tracer { return a.current().tracer }},
		a.proxy,
		a.info,
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "adbuffer_log_suppressed_total",
			Help: "Log lines that were not written, since clients, SSPs or local processes caused too many with the same message in one second.",
		}, func() float64 { return float64(a.peers.Suppressed()) }),
	}
	a.certificates.each(func(c *listen.Certificates) { all = append(all, c) })
	for _, c := range all {
		if err := a.registry.Register(c); err != nil {
			a.Close()
			return err
		}
	}
	return nil
}

// sspOptions are those of an SSP at the given endpoints.
func sspOptions(c *config.SSP, endpoints *dial.Endpoints, common common) ssp.Options {
	return ssp.Options{
		Name: c.Name, Scheme: endpoints.Scheme, Path: endpoints.Path, Query: endpoints.Query, Host: c.Host,
		Policy: httpheader.NewPolicy(httpheader.PolicyOptions{
			Pass: c.Headers.Pass, Remove: c.Headers.Remove, Set: nameValues(c.Headers.Set), Identity: identityModes[c.Identity], Via: common.via,
		}),
		RequestTimeout: c.Timeouts.Request, Patience: common.patience, MaxInFlight: c.MaxInFlight,
		MaxBufferedBytes: int64(c.BufferedBytesLimit(common.maxBufferedBytes)),
		Adaptive:         ssp.AdaptiveOptions(c.Adaptive), Breaker: ssp.BreakerOptions(c.Breaker), RetryAfterMax: c.RetryAfterMax, RetryAfterShare: c.RetryAfterShare,
		RetryMax: c.Retry.Max, RetryStale: retryStales[c.Retry.Stale], Hedge: ssp.HedgeOptions(c.Hedge),
		RewriteTmax: c.RewriteTmax, Gzip: ssp.GzipOptions(c.GzipRequest), NoBidBody: noBidBodies[c.NoBidBody],
		PipelineAll: c.Pool.PipelineMethods == config.PipelineAll,
	}
}

func poolOptions(c *config.SSP, scheme string) pool.Options {
	o := pool.Options{
		SSP:      c.Name,
		MaxConns: c.Pool.MaxConns, MaxHTTP2Conns: c.Pool.MaxHTTP2Conns, MinIdle: c.Pool.MinIdle, MaxIdle: c.Pool.MaxIdle,
		IdleTimeout: c.Pool.IdleTimeout, MaxAge: c.Pool.MaxAge, MaxRequests: c.Pool.MaxRequestsPerConn,
		MaxPending: c.Pool.MaxPending, PendingTimeout: c.Pool.PendingTimeout,
		MaxDials: c.Pool.MaxDials, BackoffMin: c.Pool.DialBackoff.Min, BackoffMax: c.Pool.DialBackoff.Max,
		ConnectTimeout: c.Timeouts.Connect,
		PipelineDepth:  c.Pool.PipelineDepth, MaxStreams: c.Pool.MaxStreamsPerConn,
	}
	if scheme == "https" {
		o.TLSTimeout = c.Timeouts.TLSHandshake
	}
	switch c.Protocol {
	case config.ProtocolHTTP1:
		o.Protocol = upstream.HTTP1
	case config.ProtocolHTTP1Pipelined:
		o.Protocol = upstream.HTTP1Pipelined
	case config.ProtocolHTTP2, config.ProtocolH2C:
		o.Protocol = upstream.HTTP2
	default:
		if scheme == "http" {
			o.Protocol = upstream.HTTP1 // cleartext has nothing to negotiate with
		}
	}
	return o
}

func (a *App) proxyOptions(c *config.Config) proxy.Options {
	s := &c.Server
	return proxy.Options{
		MaxConnections: s.MaxConnections, MaxInFlight: s.MaxInFlight, MaxUploads: s.MaxUploads, MaxBufferedBytes: int64(s.MaxBufferedBytes),
		ReadTimeout: s.ReadTimeout, WriteTimeout: s.WriteTimeout, IdleTimeout: s.IdleTimeout,
		TLS:            tlsOf(a.certificates.server),
		MaxHeaderBytes: s.MaxHeaderBytes, MaxBodyBytes: s.MaxBodyBytes, ReduceIdleMemory: s.ReduceIdleMemory,
		TrustedProxies: s.TrustedProxies, HealthPath: s.HealthPath, ErrorDetail: s.ErrorDetail, Via: a.via,
		Deadline: proxy.DeadlineOptions{
			Default: c.Deadline.Default, Max: c.Deadline.Max, Header: c.Deadline.Header,
			OpenRTBTmax: c.Deadline.OpenRTBTmax, RewriteTmax: slices.ContainsFunc(c.SSPs, func(s config.SSP) bool { return s.RewriteTmax }),
			Reserve: c.Deadline.Reserve, MinBudget: c.Deadline.MinBudget,
		},
		Access: proxy.AccessOptions{Log: a.log, Enabled: c.Log.Access.Enabled, Sample: c.Log.Access.Sample},
	}
}

func newTable(routes []config.Route, ssps map[string]*ssp.SSP) *route.Table {
	table := make([]*route.Route, len(routes))
	for i := range routes {
		c := &routes[i]
		r := &route.Route{
			Name: c.Name, Mode: modes[c.Mode], ClientChoice: c.ClientChoice,
			NoAdOnError: c.OnError == config.OnErrorNoAd, NoAd: noAds[c.NoAd], VASTVersion: c.VASTVersion,
			TruncateIP: c.Privacy == config.PrivacyTruncateIP,
			Match: route.Match{
				Path: c.Match.Path, Host: strings.ToLower(c.Match.Host),
				Query: conditions(c.Match.Query), Header: conditions(c.Match.Header),
			},
		}
		for _, t := range c.SSPs {
			r.Targets = append(r.Targets, route.Target{SSP: ssps[t.Name], Weight: t.Weight, Timeout: t.Timeout, Secondary: t.Secondary})
		}
		table[i] = r
	}
	return route.NewTable(table)
}

func conditions(cs []config.Condition) []route.Condition {
	all := make([]route.Condition, len(cs))
	for i, c := range cs {
		all[i] = route.Condition{Name: c.Name, Value: c.Value}
	}
	return all
}

func nameValues(fields []config.Field) []httpheader.NameValue {
	all := make([]httpheader.NameValue, len(fields))
	for i, f := range fields {
		all[i] = httpheader.NameValue{Name: f.Name, Value: f.Value}
	}
	return all
}

// The words of the configuration, and what the parts call them.
var (
	identityModes = map[config.Identity]httpheader.IdentityMode{
		config.IdentityXForwardedFor: httpheader.XForwardedFor, config.IdentityXDevice: httpheader.XDevice,
		config.IdentityBoth: httpheader.Both, config.IdentityNone: httpheader.None,
	}
	retryStales = map[config.RetryStale]ssp.RetryStale{
		config.RetryIdempotent: ssp.StaleIdempotent, config.RetryAll: ssp.StaleAll, config.RetryNever: ssp.StaleNever,
	}
	noBidBodies = map[config.NoBidBody]ssp.NoBidBody{
		config.NoBidNone: ssp.NoBidNone, config.NoBidVAST: ssp.NoBidVAST, config.NoBidOpenRTB: ssp.NoBidOpenRTB,
	}
	modes = map[config.Mode]route.Mode{
		config.ModeSingle: route.Single, config.ModeSplit: route.Split, config.ModeWaterfall: route.Waterfall,
		config.ModeParallelFirst: route.ParallelFirst, config.ModeParallelAll: route.ParallelAll,
	}
	noAds = map[config.NoAd]route.NoAd{config.NoAdEmpty: route.NoAdEmpty, config.NoAdVAST: route.NoAdVAST}
)
