package app

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"

	"adbuffer/internal/admin"
)

// Extra is something of the process that an App may use.
type Extra func(*App)

// WithLogLevel lets operators change the level of the log that New was given.
func WithLogLevel(l zap.AtomicLevel) Extra {
	return func(a *App) { a.level = &l }
}

// WithReload is what POST /reload does: it reads the configuration again, calls
// Reload, and returns what to answer. Without it there is no /reload.
func WithReload(f admin.Reload) Extra {
	return func(a *App) { a.reload = f }
}

// adminOptions is what operators see and may do.
func (a *App) adminOptions() admin.Options {
	return admin.Options{
		Token: func() string { return a.current().cfg.Admin.Token.Reveal() }, TLS: tlsOf(a.certificates.admin, "http/1.1"), Metrics: prometheus.GathererFunc(a.gather),
		Ready: a.readiness, Level: a.level, Log: a.log, Capture: a.capture, Reload: a.reload,
		Pools: a.poolViews, History: a.watch.view, Config: func() []byte { return a.current().cfg.YAML() },
	}
}

// gather is what a scrape sees: one generation.
func (a *App) gather() ([]*dto.MetricFamily, error) {
	a.seam.RLock()
	defer a.seam.RUnlock()
	return a.registry.Gather()
}
