// Package app builds every part of the service from a configuration, starts the
// parts, and drains them in reverse order.
package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"adbuffer/internal/client/listen"
	"adbuffer/internal/machine/configfile"
	"adbuffer/internal/machine/lag"
	"adbuffer/internal/machine/overload"
	"adbuffer/internal/operate/admin"
	"adbuffer/internal/operate/adminview"
	"adbuffer/internal/request/proxy"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/setup/reload"
	"adbuffer/internal/ssp/fleet"
	"adbuffer/internal/wire/cpushare"
	"adbuffer/internal/wire/logs"
)

// App is the whole service. Create it with New, and run it once with Run.
type App struct {
	log      *zap.Logger   // for events that operators cause
	peers    *logs.Limiter // limits the log of events that clients, SSPs and local processes cause
	registry *prometheus.Registry
	proxy    *proxy.Proxy
	admin    *admin.Server
	versions *reload.Versions
	// replaying holds a value while a replay of the traffic runs.
	replaying chan struct{}
	tried     atomic.Pointer[string] // what GET /reload shows; nil = nothing was tried
	before    atomic.Pointer[string] // hash of the configuration that may come back untried: the last one that another has replaced; nil = none
	requests  *logs.RequestLog
	views     *adminview.Views
	fleet     *fleet.Fleet // nil = no Redis is configured
	// redisFiles are the TLS files of connections to Redis; nil = cleartext.
	redisFiles *configfile.Keeper
	queue      *lag.Queue // of the lag's meter
	turns      *lag.Queue // of dry runs, which let requests go first
	lag        *lag.Meter
	overload   *overload.Gate
	share      *cpushare.Share
	state      atomic.Int32
	started    time.Time
	via        string // the name of this process in Via; unique to the process
	process    Process
	// configuredLevel is log.level of the configuration in force.
	configuredLevel config.LogLevel

	sockets      *listen.Sockets
	certificates certificates
	accepting    chan struct{} // closed when adbuffer has stopped accepting client connections

	background sync.WaitGroup  // goroutines that end when alive ends
	alive      context.Context // ends when the pools are closed
	die        context.CancelFunc
}

// The states of the service, in their order, as /readyz reports them:
//
//	starting -> ready -> draining
//
// starting ends when the min_idle connections are open or admin.warmup_timeout has passed. draining begins
// with the first signal. Whether SSPs work has no influence on the state.
const (
	starting int32 = iota
	ready
	draining
)

var stateNames = map[int32]string{starting: "starting", ready: "ready", draining: "draining"}

// Process holds the parts of the process that an App uses. Each may be nil.
type Process struct {
	Level *zap.AtomicLevel // level of the log given to New; operators and reloads change it
	Sink  *logs.Sink       // sink of the log given to New
	// Reload reads the configuration again and calls App.Reload, for POST /reload.
	Reload func(context.Context, reload.Trial) (status int, report any)
}

// New builds the service from cfg and opens its listeners, so that a configuration that cannot work fails
// here. Call Run to serve, or else Close, which releases what New opened.
func New(cfg *config.Config, log *zap.Logger, process Process) (*App, error) {
	a, err := newApp(cfg, log, process, newVia())
	if err != nil {
		return nil, err
	}
	if err := a.open(); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// open registers the metrics and opens the listeners.
func (a *App) open() error {
	if err := a.register(); err != nil {
		return err
	}
	if err := a.listen(); err != nil {
		return err
	}
	a.admin = admin.New(a.adminOptions(), a.sockets.Admin)
	return a.registry.Register(a.admin.Metrics())
}

// newApp makes every part of an App except what open makes. via is the name of the App in the field Via.
func newApp(cfg *config.Config, log *zap.Logger, process Process, via string) (*App, error) {
	a := &App{log: log, configuredLevel: cfg.Log.Level, peers: logs.NewLimiter(log), process: process, started: time.Now(), via: via, accepting: make(chan struct{}), replaying: make(chan struct{}, 1)}
	a.alive, a.die = context.WithCancel(context.Background())
	a.requests = logs.NewRequestLog(log, a.peers)
	if err := a.build(cfg); err != nil {
		a.die()
		return nil, err
	}
	return a, nil
}

// Ready reports whether the service is in the state ready: neither starting nor draining.
func (a *App) Ready() bool { return a.state.Load() == ready }

func (a *App) readiness() error {
	switch a.state.Load() {
	case ready:
		return nil
	case draining:
		return errors.New("draining")
	default:
		text := "starting: min_idle connections are being opened"
		if cold := a.views.Cold(); cold != "" {
			text += "; " + cold
		}
		return errors.New(text)
	}
}

// Close closes the listeners and pools of a service for which Run was not called.
func (a *App) Close() {
	if a.sockets != nil {
		a.sockets.Close()
	}
	now, cancel := context.WithCancel(context.Background())
	cancel()
	a.closePools(now)
}

// errCut is the error of Run if requests were still in flight at the end of the drain.
var errCut = errors.New("requests were cut at the end of the drain")

// Run serves until ctx ends, and then drains: /readyz fails at once, connections are accepted for
// server.drain.delay longer, and requests in flight have server.drain.timeout. If hurry ends, Run stops
// waiting for both. Run returns nil if no request was cut.
func (a *App) Run(ctx, hurry context.Context) error {
	failed := make(chan error, 2)
	go func() { failed <- a.admin.Serve(a.sockets.Admin) }()
	go func() {
		defer close(a.accepting)
		failed <- a.proxy.Serve(a.sockets.Traffic)
	}()
	defer a.lag.Watch()()
	a.sockets.Serving(a.admin.StandBy)
	a.logStart()
	a.background.Go(func() { a.warm(ctx) })
	a.background.Go(func() { a.views.Watch(a.alive, a.proxy, a.process.Sink.Dropped) })
	a.background.Go(func() { a.returnIdleMemory(a.alive) })
	a.background.Go(func() { a.sizePools(a.alive) })
	a.watchCertificates(a.alive)

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		a.log.Error("a listener failed", zap.Error(err))
	}
	return errors.Join(err, a.drain(hurry))
}

// warm opens the min_idle connections, and then makes the service ready, unless ctx ends first.
func (a *App) warm(ctx context.Context) {
	stop := a.logCold()
	a.versions.Warm(ctx)
	stop()
	if ctx.Err() == nil && a.state.CompareAndSwap(starting, ready) {
		a.notifyReady()
		a.log.Info("ready", zap.Stringer("listen", a.TrafficAddr()), zap.Stringer("admin", a.AdminAddr()))
	}
}

// logCold logs once a second for which SSPs the start waits, until stop is called.
func (a *App) logCold() (stop func()) {
	var done sync.WaitGroup
	warm := make(chan struct{})
	done.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-warm:
				return
			case <-tick.C:
				if cold := a.views.Cold(); cold != "" {
					a.log.Info("starting: min_idle connections are being opened", zap.String("waiting_for", cold))
				}
			}
		}
	})
	return func() {
		close(warm)
		done.Wait()
	}
}

// drain undoes Run and New in reverse order.
func (a *App) drain(hurry context.Context) error {
	a.state.Store(draining)
	a.versions.BeginDrain()
	d := a.versions.Current().Config.Server.Drain
	a.log.Info("draining", zap.Duration("delay", d.Delay), zap.Duration("timeout", d.Timeout), zap.Int("in_flight", a.proxy.InFlight()))
	a.notifyStopping()
	a.proxy.BeginDrain()
	a.sockets.BeginDrain()
	delay, cancel := context.WithTimeout(hurry, d.Delay)
	defer cancel()
	<-delay.Done()
	ctx, cancel := context.WithTimeout(hurry, d.Timeout)
	defer cancel()
	a.sockets.CloseTraffic()
	<-a.accepting // until the connections that the kernel had queued have been accepted
	cut := a.proxy.Drain(ctx)
	a.closePools(ctx)

	soon, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	a.admin.Close(soon)
	if cut > 0 {
		a.log.Error("stopped, with requests cut; see server.drain.timeout", zap.Int("cut", cut))
		return fmt.Errorf("%w: %d", errCut, cut)
	}
	a.log.Info("stopped")
	return nil
}

// closePools closes the pools of all config versions, and leaves the fleet.
func (a *App) closePools(ctx context.Context) {
	a.die()
	a.versions.Close(ctx)
	a.background.Wait()
	a.withFleet((*fleet.Fleet).Close)
	a.queue.Close()
	a.turns.Close()
}
