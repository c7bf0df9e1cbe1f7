package app

import (
	"go.uber.org/zap"

	"adbuffer/internal/admin"
)

// Extra is something of the process that an App may use.
type Extra func(*App)

// WithLogLevel lets operators change the level of the log that New was given.
func WithLogLevel(l zap.AtomicLevel) Extra {
	return func(a *App) { a.level = &l }
}

// adminOptions is what operators see and may do.
func (a *App) adminOptions() admin.Options {
	o := admin.Options{
		Token: func() string { return a.cfg.Admin.Token.Reveal() }, Metrics: a.registry, Ready: a.readiness, Level: a.level, Log: a.log,
		Pools: a.poolViews, History: a.watch.view, Config: func() []byte { return configView(a.cfg) },
	}
	if a.cfg.Admin.Capture {
		o.Capture = a.capture
	}
	return o
}
