package app

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"adbuffer/internal/client/http1"
	"adbuffer/internal/client/listen"
	"adbuffer/internal/machine/lag"
	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/machine/overload"
	"adbuffer/internal/operate/adminview"
	"adbuffer/internal/operate/advice"
	"adbuffer/internal/operate/replay"
	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/setup/reload"
	"adbuffer/internal/ssp/fleet"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/cpushare"
)

var (
	logDescs      metrics.Descs
	descLinesLost = logDescs.New("adbuffer_log_dropped_total", "Log lines that were not written, because standard error was blocked or failed (blocked), or because clients, SSPs or local processes caused too many with the same message in one second (flood).", "reason")
)

// build makes every part except what open makes.
func (a *App) build(cfg *config.Config) error {
	if err := a.loadCertificates(cfg); err != nil {
		return err
	}
	if err := a.startFleet(&cfg.Fleet); err != nil {
		return err
	}
	a.queue, a.turns = lag.NewQueue(), lag.NewQueue()
	a.overload, a.lag = new(overload.Gate), lag.New(a.queue.Pass)
	a.overload.Configure(cfg.Server.Overload)
	a.share = cpushare.New(backgroundCPU(cfg))
	a.lag.OnWindow(func(least, length time.Duration) {
		a.overload.Observe(least, length)
		a.share.Observe(least, length)
	})
	var err error
	a.versions, err = reload.New(cfg, reload.Options{
		Log: a.log, Peers: a.peers.Logger(), Via: a.via, AppVersion: Version, Fleet: a.fleet, Lag: a.lag, CPU: a.share,
		FreeFile:   func(err error) bool { return a.state.Load() != starting && a.proxy.FreeFile(err) }, // the proxy is made later
		InProgress: func() int { return a.proxy.InProgress() }, Apply: a.apply, Applied: a.applied,
	})
	if err != nil {
		a.withFleet((*fleet.Fleet).Close)
		a.queue.Close()
		a.turns.Close()
		return err
	}
	a.withFleet((*fleet.Fleet).AwaitFirst)
	first := a.versions.Current()
	a.views = adminview.New(a.versions, a.peers.Logger())
	a.proxy = proxy.New(a.proxyOptions(first), first.Table, a.peers.Logger(), a.requests, a.Ready)
	return nil
}

// backgroundCPU returns the settings of cpushare: the limit in cores, and the lag from which it applies.
func backgroundCPU(c *config.Config) (limit float64, lag time.Duration) {
	return c.Server.BackgroundCPU, c.Server.Overload.Target / 2
}

// register registers all metrics.
func (a *App) register() error {
	a.registry = prometheus.NewRegistry()
	var certificates []*listen.Certificates
	a.certificates.each(func(c *listen.Certificates) { certificates = append(certificates, c) })
	all := []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		pool.NewCollector(func() []*pool.Pool { return a.versions.Current().Pools }),
		ssp.NewCollector(func() []*ssp.SSP { return a.versions.Current().SSPs }),
		route.NewMirrorCollector(func() *route.Table { return a.versions.Current().Table }),
		fleet.NewCollector(func() *fleet.Fleet { return a.fleet }),
		a.versions.Metrics(),
		a.proxy.Metrics(),
		listen.NewCertificatesCollector(certificates),
		a.share.Metrics(),
		newBuildInfo(),
		newCPUMetrics(),
		metrics.NewSource(memoryDescs, a.collectMemory),
		metrics.NewSource(logDescs, func(to metrics.Sink) {
			to.Counter(descLinesLost, a.process.Sink.Dropped(), "blocked")
			to.Counter(descLinesLost, a.peers.Suppressed(), "flood")
		}),
	}
	for _, c := range all {
		if err := a.registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// Reload applies cfg after the trial t, unless ctx ends during the trial; see reload.Versions.Replace.
func (a *App) Reload(ctx context.Context, cfg *config.Config, t *reload.Trial) (*reload.Report, error) {
	if a.Ready() {
		a.notifyReloading()
		defer a.notifyReady()
	}
	was := a.versions.Current().Config
	rep, err := a.try(ctx, cfg, t)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("the client of POST /reload gave up during the trial on the traffic: %w", ctx.Err())
	}
	if err != nil {
		a.versions.Failed(err)
		a.noteTried("# a reload was refused\n", rep)
		return nil, err
	}
	res, err := a.versions.Replace(cfg)
	if err == nil {
		if hash := was.Hash(); cfg.Hash() != hash && !a.mayComeBack(cfg) {
			a.before.Store(&hash)
		}
		if rep != nil {
			a.noteTried("# a reload was applied\n", rep)
		}
		a.logInForce(was, cfg)
		res.Warnings = a.groupWarnings(cfg)
	}
	return res, err
}

// dryRun returns the response to a dry run: what a reload of document, with the variables of this process,
// would do and, if traffic is true, what it would do to the sampled traffic.
func (a *App) dryRun(ctx context.Context, document []byte, traffic bool) (status int, report any) {
	env := config.OSEnv()
	cfg, warnings, err := config.ParseInSteps(document, env, a.turns.Pass)
	a.turns.Pass()
	var d *reload.Difference
	if err == nil {
		d, err = a.versions.DryRun(cfg)
		warnings = append(warnings, a.groupWarnings(cfg)...)
	}
	a.turns.Pass()
	check := replay.Check{Check: reload.NewCheck(cfg, warnings, err)}
	check.Against = d
	hide := reload.Hider(env.Referenced(document))
	check.Hide(hide)
	if traffic && err == nil {
		check.Traffic = a.replay(ctx, cfg, a.maxChange())
		check.Traffic.Hide(hide)
		var verdict strings.Builder
		shown := *d
		shown.URL = "adbuffer"
		shown.Write(&verdict, "the file", Version, true)
		a.noteTried(verdict.String(), check.Traffic)
	}
	if err != nil || d.Verdict == reload.NeedsRestart {
		return http.StatusUnprocessableEntity, check
	}
	return http.StatusOK, check
}

// groupWarnings warns of spare endpoints that could not carry the load of the last minute without the
// endpoints of earlier priorities.
func (a *App) groupWarnings(cfg *config.Config) []config.Warning {
	var all []advice.Observation
	a.versions.Look(func(current *reload.Version) {
		for _, p := range current.Parts {
			s, o := p.SSP.Pool().Snapshot(), p.SSP.Pool().Options()
			all = append(all, advice.ObservePool(&s, &o))
		}
	})
	return advice.GroupWarnings(cfg, all)
}

// ReloadFailed records that the configuration could not be read again, because of err.
func (a *App) ReloadFailed(err error) { a.versions.Failed(err) }

// apply makes next the version of new requests. It is called with the swap lock held.
func (a *App) apply(next *reload.Version) {
	a.overload.Configure(next.Config.Server.Overload)
	a.share.Configure(backgroundCPU(next.Config))
	a.proxy.Reload(a.proxyOptions(next), next.Table)
	a.trustPeers(next.Config)
	a.certificates.setPolicies(next.Config)
}

// applied applies the settings of next that need not change at the moment of the swap.
func (a *App) applied(next *reload.Version) {
	a.certificates.reload()
	if level := next.Config.Log.Level; a.process.Level != nil && level != a.configuredLevel { // an unchanged log.level does not undo PUT /log/level
		a.configuredLevel = level
		a.process.Level.UnmarshalText([]byte(level)) //nolint:errcheck // config allows zap's words only
	}
}

func (a *App) proxyOptions(v *reload.Version) proxy.Options {
	c := v.Config
	s := &c.Server
	return proxy.Options{
		Options: http1.Options{
			MaxConnections: c.MaxConnections().Value, MaxConnectionsFrom: c.MaxConnections().From(), MaxBufferedBytes: int64(c.MaxBufferedBytes().Value),
			MaxStreams: s.MaxStreams, H2C: s.H2C, ReadTimeout: s.ReadTimeout, WriteTimeout: s.WriteTimeout, IdleTimeout: s.IdleTimeout,
			MaxHeaderBytes: s.MaxHeaderBytes, MaxBodyBytes: s.MaxBodyBytes, AbortOnClose: s.AbortOnClose,
			TLS: tlsOf(a.certificates.server, http1.NextProtos()...), CPU: a.share,
		},
		MaxBufferedBytesFrom: c.MaxBufferedBytes().From(), MaxInFlight: s.MaxInFlight, MaxUploads: s.MaxUploads,
		TrustedProxies: s.TrustedProxies, HealthPath: s.HealthPath, ErrorDetail: s.ErrorDetail, Via: a.via, RequestIDField: s.RequestID.Header, ProxyStatus: s.ProxyStatus,
		Deadline: proxy.DeadlineOptions{
			Default: c.Deadline.Default, Max: c.Deadline.Max, Header: c.Deadline.Header,
			OpenRTBTmax: c.Deadline.OpenRTBTmax, RewriteTmax: slices.ContainsFunc(c.SSPs, func(s config.SSP) bool { return s.RewriteTmax }),
			Reserve: c.Deadline.Reserve, MinBudget: c.Deadline.MinBudget,
		},
		Fairness: ssp.NewFairnessKey(s.Fairness.Key),
		Access:   c.Log.Access,
		Sample:   c.Admin.Sample.Limits,
		Tracer:   v.Tracer, Overload: a.overload,
	}
}
