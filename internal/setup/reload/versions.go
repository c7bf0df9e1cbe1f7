// Package reload replaces the configuration of a running service. It reads the file again, lists
// the changes and builds the next config version. It then drains the parts of the old version that
// the next one does not use.
package reload

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/machine/lag"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/ssp/fleet"
	"adbuffer/internal/wire/cpushare"
)

// Options are the values that all config versions of a process share.
type Options struct {
	Log        *zap.Logger     // for events that operators cause
	Peers      *zap.Logger     // for events that SSPs cause
	Via        string          // the name of this process in Via
	AppVersion string          // the version of adbuffer, for spans
	Fleet      *fleet.Fleet    // nil = no Redis is configured
	Lag        *lag.Meter      // the lag of this process; nil = lag is not measured
	CPU        *cpushare.Share // bounds the CPU of TLS handshakes with SSPs; nil = no bound
	// FreeFile is dial.Options.FreeFile.
	FreeFile func(error) bool
	// InProgress returns how many requests have begun and not ended.
	InProgress func() int
	// Apply makes next the version of all requests that begin after the call. It is called with swapLock
	// held, so it must not block.
	Apply func(next *Version)
	// Applied is called after a reload, before the next reload begins.
	Applied func(next *Version)
}

// Versions holds the config version in force, and replaces it by the next one.
type Versions struct {
	opts    Options
	current atomic.Pointer[Version]
	failed  atomic.Pointer[FailedReload] // the last reload, if it failed; nil = it succeeded
	// A swap of versions holds swapLock for writing. A goroutine that reads several parts of one
	// version, such as a scrape, holds it for reading.
	swapLock sync.RWMutex

	reloading sync.Mutex // held by Replace and DryRun

	serving    context.Context // ends when the drain begins, after which no Replace may begin
	stop       context.CancelFunc
	alive      context.Context // ends when the pools are closed
	die        context.CancelFunc
	background sync.WaitGroup // pools that warm up or drain, until alive ends
	leftovers  atomic.Int64   // pools that drain after a reload
}

// New builds the first version. It opens no connection; see Warm.
func New(cfg *config.Config, opts Options) (*Versions, error) {
	v := &Versions{opts: opts}
	v.alive, v.die = context.WithCancel(context.Background())
	v.serving, v.stop = context.WithCancel(v.alive)
	p, err := v.prepare(&Version{Config: new(config.Config)}, cfg, nil)
	if err != nil {
		v.die()
		return nil, err
	}
	first := p.build(opts.Fleet)
	first.Loaded = time.Now()
	v.current.Store(first)
	v.failed.Store(nil)
	return v, nil
}

// Current returns the current version. Two calls may return different versions.
func (v *Versions) Current() *Version { return v.current.Load() }

// Serving returns a context that ends when the drain begins.
func (v *Versions) Serving() context.Context { return v.serving }

// Look calls f while no swap can happen, so that all parts that f sees belong to one version.
func (v *Versions) Look(f func(current *Version)) {
	v.swapLock.RLock()
	defer v.swapLock.RUnlock()
	f(v.Current())
}

// ErrStopping is the error of Replace once the drain has begun.
var ErrStopping = errors.New("adbuffer is stopping, and accepts no new configuration")

// Replace makes cfg the configuration of every request that begins after the swap. Requests that began
// earlier keep their SSP, its settings and its connections until they end.
//
// Steps that can fail come first. If a step fails, or if a changed setting needs a restart, the configuration in
// force stays: Replace passes the errors to Failed, and returns them as config.Errors.
//
// Calls run one after the other. A call waits up to prewarmLimit for the connections of new pools that
// replace old pools. It does not wait until old pools have drained.
func (v *Versions) Replace(cfg *config.Config) (*Report, error) {
	v.reloading.Lock()
	defer v.reloading.Unlock()
	if v.serving.Err() != nil {
		return nil, ErrStopping
	}
	was := v.Current()
	p, err := v.prepareReload(was, cfg)
	if err != nil {
		v.Failed(err)
		return nil, err
	}
	p.prewarm(v.serving)
	next := v.swap(p)
	v.warmAdded(was, next)
	v.drainLeftover(was, next)
	if v.serving.Err() != nil { // a drain began before the swap, and paused only the checks of was
		pauseChecks(next.Parts)
	}
	v.opts.Applied(next)
	report := &Report{Result: applied, Hash: next.Hash(), Changes: p.changes}
	if len(p.changes) == 0 {
		report.Result = unchanged
	}
	report.log(v.opts.Log)
	return report, nil
}

func (v *Versions) prepareReload(was *Version, cfg *config.Config) (*prepared, error) {
	changes := config.Compare(was.Config, cfg)
	if faults := restartErrors(changes); len(faults) > 0 {
		return nil, faults
	}
	return v.prepare(was, cfg, changes)
}

// restartErrors returns an error for each change that needs a restart.
func restartErrors(changes []config.Change) (faults config.Errors) {
	for _, c := range changes {
		if c.Effect == config.Restart {
			faults = append(faults, config.Error{
				Path: c.Path, Value: cmp.Or(c.New, "none"), Rule: "is " + cmp.Or(c.Old, "none") + " in the running process, and needs a restart to change",
			})
		}
	}
	return faults
}

// swap makes the prepared version the current one. A function called by Look sees either the old version
// or the new version, never parts of both.
func (v *Versions) swap(p *prepared) *Version {
	v.swapLock.Lock()
	defer v.swapLock.Unlock()
	next := p.build(v.opts.Fleet)
	next.Loaded = time.Now()
	v.opts.Apply(next)
	v.keepBuckets(next.Config)
	v.current.Store(next)
	v.failed.Store(nil)
	return next
}

// keepBuckets gives the fleet the Redis password of cfg, and ends the leases of limits that replicas no longer share
// in cfg.
func (v *Versions) keepBuckets(cfg *config.Config) {
	if v.opts.Fleet == nil {
		return
	}
	v.opts.Fleet.SetPassword(cfg.Fleet.Redis.Password.Reveal())
	shared := make(map[string]bool)
	for i := range cfg.SSPs {
		if c := &cfg.SSPs[i]; c.SharesLimit() {
			shared[c.Name] = true
		}
	}
	v.opts.Fleet.Keep(shared)
}

// FailedReload is a reload that changed nothing, so that the configuration in force may differ from the
// file.
type FailedReload struct {
	At  time.Time
	Err error // config.Errors if the file has errors
}

// LastFailed returns the last reload if it failed, or nil.
func (v *Versions) LastFailed() *FailedReload { return v.failed.Load() }

// Failed records that a configuration could not be read or applied. It logs the errors, up to maxLogged
// of them, and sets config_last_reload_successful to 0.
func (v *Versions) Failed(err error) {
	v.failed.Store(&FailedReload{time.Now(), err})
	const message = "the configuration was not reloaded; the previous one stays in force"
	var faults config.Errors
	if !errors.As(err, &faults) {
		v.opts.Log.Error(message, zap.Error(err))
		return
	}
	for i, f := range faults {
		if i == maxLogged {
			v.opts.Log.Error("further errors of the configuration are not logged", zap.Int("errors", len(faults)-i))
			return
		}
		v.opts.Log.Error(message, zap.String("fault", f.String()))
	}
}

// Warm opens the min_idle connections of the current version's pools, within admin.warmup_timeout.
func (v *Versions) Warm(ctx context.Context) {
	current := v.Current()
	v.warm(ctx, current.Parts, current.Config.Admin.WarmupTimeout)
}

// warmAdded opens the min_idle connections of new pools, in the background.
func (v *Versions) warmAdded(was, next *Version) {
	if added := next.without(was); len(added) > 0 {
		v.background.Go(func() { v.warm(v.alive, added, next.Config.Admin.WarmupTimeout) })
	}
}

func (v *Versions) warm(ctx context.Context, parts []*Part, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var wg sync.WaitGroup
	for _, p := range parts {
		wg.Go(func() {
			if err := p.SSP.Pool().Warm(ctx); errors.Is(err, context.DeadlineExceeded) {
				v.opts.Log.Warn("not all min_idle connections could be opened in time; see pool.min_idle and admin.warmup_timeout",
					zap.String("ssp", p.Config.Name), zap.Duration("warmup_timeout", limit))
			}
		})
	}
	wg.Wait()
}

// BeginDrain makes Replace refuse further versions, ends its wait for new pools, and stops all health
// checks.
func (v *Versions) BeginDrain() {
	v.stop()
	pauseChecks(v.Current().Parts)
}

// pauseChecks stops the health checks of the pools. The endpoints keep their states.
func pauseChecks(parts []*Part) {
	for _, p := range parts {
		o := p.SSP.Pool().Options()
		o.HealthCheck.Paused = true
		p.SSP.Pool().SetOptions(o)
	}
}

// Close closes all pools, including those that drain after a reload, and then the
// tracer. It waits for a reload in progress first.
func (v *Versions) Close(ctx context.Context) {
	v.stop()
	v.reloading.Lock() // waits for a reload in progress
	defer v.reloading.Unlock()
	v.die()
	current := v.Current()
	closeParts(ctx, current.Parts)
	v.background.Wait()
	closeTracer(current.Tracer, v.opts.Log)
}
