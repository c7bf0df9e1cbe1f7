package app

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"adbuffer/internal/config"
	"adbuffer/internal/reload"
)

// Reloaded is what a reload did.
type Reloaded struct {
	Hash    string          `json:"hash"`    // of the configuration in force
	Changes []reload.Change `json:"changes"` // none where nothing changed
}

// ErrStopping is what Reload returns once the drain has begun.
var ErrStopping = errors.New("adbuffer is stopping, and takes no other configuration")

// Reload brings cfg into force, for every request that begins from now on. Those
// that have begun end with what they began with: on the same SSP, with its
// settings, over its connections.
//
// What can fail is done first. Where something does, or a setting changed that
// needs a restart, nothing changes; the error is config.Faults then, and has been
// logged and counted.
//
// Calls wait for one another. A call waits a little for pools that replace others
// to have connections, and for nothing else: not for old pools to drain.
func (a *App) Reload(cfg *config.Config) (*Reloaded, error) {
	a.reloading.Lock()
	defer a.reloading.Unlock()
	if a.ending || a.state.Load() == draining {
		return nil, ErrStopping
	}
	if a.Ready() {
		a.notifyReloading()
		defer a.notifyReady()
	}
	was := a.current()
	changes := reload.Compare(was.cfg, cfg)
	if faults := restartFaults(changes); len(faults) > 0 {
		a.ReloadFailed(faults)
		return nil, faults
	}
	p, err := a.plan(was, cfg)
	if err != nil {
		a.ReloadFailed(err)
		return nil, err
	}
	changes = append(changes, p.contentChanges()...)
	p.prewarm(a.serving)
	hash := a.hash.of(cfg)
	next := a.swap(was, p, hash)
	a.warmAdded(was, next)
	a.retire(was, next)
	a.certificates.reload()
	if a.level != nil {
		a.level.SetLevel(logLevels[cfg.Log.Level])
	}
	res := &Reloaded{Hash: hash, Changes: changes}
	a.logReload(res)
	return res, nil
}

// ReloadFailed notes that a configuration could not be brought into force, also
// one that cannot even be read: it logs each fault, and shows in
// config_last_reload_successful.
func (a *App) ReloadFailed(err error) {
	a.info.good.Store(false)
	var faults config.Faults
	if !errors.As(err, &faults) {
		a.log.Error("the configuration was not reloaded; the one before stays in force", zap.Error(err))
		return
	}
	for _, f := range faults {
		a.log.Error("the configuration was not reloaded; the one before stays in force", zap.String("fault", f.String()))
	}
}

// restartFaults are the changes that no reload can make.
func restartFaults(changes []reload.Change) config.Faults {
	var faults config.Faults
	for _, c := range changes {
		if c.Effect == reload.Restart {
			faults = append(faults, config.Fault{
				Path: c.Path, Value: reload.OrNone(c.New), Rule: "is " + reload.OrNone(c.Old) + " in the running process and cannot change there: restart it",
			})
		}
	}
	return faults
}

// swap makes the next generation the current one. Who looks at several parts at
// once, such as a scrape, sees either all of the one or all of the other.
func (a *App) swap(was *generation, p *plan, hash string) *generation {
	a.seam.Lock()
	defer a.seam.Unlock()
	next := p.carryOut(was)
	a.proxy.Reload(a.proxyOptions(next.cfg), next.table)
	a.trustPeers(next.cfg)
	a.shareLimits(next.cfg)
	a.generation.Store(next)
	a.observers.trace(next)
	a.info.load(hash, time.Now())
	return next
}

// warmAdded opens min_idle connections of the pools that are new, in the
// background.
func (a *App) warmAdded(was, next *generation) {
	if added := next.without(was); len(added) > 0 {
		a.background.Go(func() { a.warmParts(a.alive, added, next.cfg.Admin.WarmupTimeout) })
	}
}

// warmParts opens min_idle connections, as far as that can be done in time.
func (a *App) warmParts(ctx context.Context, parts []*part, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var wg sync.WaitGroup
	for _, p := range parts {
		wg.Go(func() {
			if err := p.ssp.Pool().Warm(ctx); errors.Is(err, context.DeadlineExceeded) {
				a.log.Warn("not all min_idle connections could be opened in time; see pool.min_idle and admin.warmup_timeout",
					zap.String("ssp", p.cfg.Name), zap.Duration("warmup_timeout", limit))
			}
		})
	}
	wg.Wait()
}

// maxLoggedChanges is of one reload. A change of ssp_defaults is one of every SSP.
const maxLoggedChanges = 100

func (a *App) logReload(r *Reloaded) {
	a.log.Info("configuration reloaded", zap.String("hash", r.Hash), zap.Int("changes", len(r.Changes)))
	for i, c := range r.Changes {
		if i == maxLoggedChanges {
			a.log.Info("more of the configuration changed", zap.Int("changes", len(r.Changes)-i))
			return
		}
		a.log.Info("configuration changed", zap.String("path", c.Path), zap.String("old", c.Old), zap.String("new", c.New), zap.String("effect", string(c.Effect)))
	}
}

var logLevels = map[config.LogLevel]zapcore.Level{
	config.LevelDebug: zapcore.DebugLevel, config.LevelInfo: zapcore.InfoLevel, config.LevelWarn: zapcore.WarnLevel, config.LevelError: zapcore.ErrorLevel,
}
