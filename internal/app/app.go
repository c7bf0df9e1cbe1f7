// Package app builds every part from a config, starts them, and drains them in
// reverse order.
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

	"adbuffer/internal/admin"
	"adbuffer/internal/config"
	"adbuffer/internal/fleet"
	"adbuffer/internal/listen"
	"adbuffer/internal/loglimit"
	"adbuffer/internal/proxy"
	"adbuffer/internal/ssp"
)

// App is the whole service. Make one with New, run it once with Run.
type App struct {
	log       *zap.Logger       // of what operators cause
	peers     *loglimit.Limiter // of what clients, SSPs and local processes cause
	registry  *prometheus.Registry
	proxy     *proxy.Proxy
	admin     *admin.Server
	state     atomic.Int32
	started   time.Time
	via       string // the name of this process in Via, another in each process
	watch     *watch
	observers observers
	hash      hashed
	info      *info
	level     *zap.AtomicLevel // nil where the log's level cannot be changed
	fleet     *fleet.Fleet     // nil where no Redis is configured
	reload    admin.Reload     // nil where nobody can read the configuration again

	sockets      *listen.Sockets
	certificates certificates
	accepting    chan struct{} // closed when no connection of clients is accepted any more

	generation atomic.Pointer[generation] // in force; see current
	seam       sync.RWMutex               // held to write while generations change, to read by who looks at several parts of one
	reloading  sync.Mutex                 // held by Reload, guards ending
	ending     bool                       // no other generation comes

	serving    context.Context // ends when the drain begins
	stop       context.CancelFunc
	alive      context.Context // ends when the pools are closed
	die        context.CancelFunc
	background sync.WaitGroup // what goes on beside, until alive ends: pools that get warm, or drain
	retiring   atomic.Int64   // pools that drain after a reload
}

// The states of the service, as /readyz tells them. They are passed in order:
//
//	starting -> ready -> draining
//
// starting ends when min_idle connections are open or warmup_timeout passes,
// draining begins with the first signal. An SSP's state changes nothing here.
const (
	starting int32 = iota
	ready
	draining
)

// New builds the service from cfg and opens its listeners, so that what cannot
// work fails here. Nothing is served before Run; Close undoes New where Run is
// not called.
func New(cfg *config.Config, log *zap.Logger, extras ...Extra) (*App, error) {
	a := &App{log: log, peers: loglimit.New(log), started: time.Now(), via: newVia(), accepting: make(chan struct{})}
	a.watch = newWatch(a.peers.Logger())
	a.alive, a.die = context.WithCancel(context.Background())
	a.serving, a.stop = context.WithCancel(a.alive)
	for _, e := range extras {
		e(a)
	}
	if err := a.build(cfg); err != nil {
		return nil, err
	}
	if err := a.listen(); err != nil {
		a.Close()
		return nil, err
	}
	a.admin = admin.New(a.adminOptions(), a.sockets.Admin)
	return a, nil
}

// current is the generation in force. It may be another with the next call.
func (a *App) current() *generation { return a.generation.Load() }

// Ready reports whether the service takes requests and is warm.
func (a *App) Ready() bool { return a.state.Load() == ready }

func (a *App) readiness() error {
	switch a.state.Load() {
	case ready:
		return nil
	case draining:
		return errors.New("draining")
	default:
		return errors.New("starting: min_idle connections are being opened")
	}
}

// Close closes the listeners and pools of a service that does not run.
func (a *App) Close() {
	if a.sockets != nil {
		a.sockets.Close()
	}
	now, cancel := context.WithCancel(context.Background())
	cancel()
	a.closePools(now)
}

// ErrCut is what Run returns where the end of the drain cut requests.
var ErrCut = errors.New("requests were cut at the end of the drain")

// Run serves until ctx ends, and then drains: not ready at once, still
// accepting for server.drain.delay, and at most server.drain.timeout for what
// is in flight. hurry ends the waiting early. Run returns nil when nothing was
// cut.
func (a *App) Run(ctx, hurry context.Context) error {
	failed := make(chan error, 2)
	go func() { failed <- a.admin.Serve(a.sockets.Admin) }()
	go func() {
		defer close(a.accepting)
		failed <- a.proxy.Serve(a.sockets.Traffic)
	}()
	a.sockets.Serving(a.admin.StandBy)
	a.logStart()
	a.background.Go(func() { a.warm(ctx) })
	watching, unwatch := context.WithCancel(context.Background())
	defer unwatch()
	go a.watch.run(watching, func() []*ssp.SSP { return a.current().ssps })
	a.watchCertificates(a.alive)

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		a.log.Error("a listener failed", zap.Error(err))
	}
	return errors.Join(err, a.drain(hurry))
}

// warm opens min_idle connections, and makes the service ready.
func (a *App) warm(ctx context.Context) {
	g := a.current()
	a.warmParts(ctx, g.parts, g.cfg.Admin.WarmupTimeout)
	if a.state.CompareAndSwap(starting, ready) {
		a.notifyReady()
		a.log.Info("ready", zap.Stringer("listen", a.TrafficAddr()), zap.Stringer("admin", a.AdminAddr()))
	}
}

// drain is starting in reverse.
func (a *App) drain(hurry context.Context) error {
	a.state.Store(draining)
	a.stop()
	d := a.current().cfg.Server.Drain
	a.log.Info("draining", zap.Duration("delay", d.Delay), zap.Duration("timeout", d.Timeout), zap.Int("in_flight", a.proxy.InFlight()))
	a.notifyStopping()
	a.proxy.BeginDrain()
	a.sockets.BeginDrain()
	await(d.Delay, hurry)
	ctx, cancel := context.WithTimeout(hurry, d.Timeout)
	defer cancel()
	a.sockets.CloseTraffic()
	<-a.accepting // with all that was queued
	cut := a.proxy.Drain(ctx)
	a.closePools(ctx)

	soon, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	a.admin.Close(soon)
	if cut > 0 {
		a.log.Error("stopped, with requests cut; see server.drain.timeout", zap.Int("cut", cut))
		return fmt.Errorf("%w: %d", ErrCut, cut)
	}
	a.log.Info("stopped")
	return nil
}

func await(d time.Duration, sooner context.Context) {
	select {
	case <-time.After(d):
	case <-sooner.Done():
	}
}

// closePools ends the SSPs, those too that drain after a reload, and the tracer.
// A reload under way comes to its end before.
func (a *App) closePools(ctx context.Context) {
	a.stop()
	a.reloading.Lock()
	a.ending = true
	a.reloading.Unlock()
	a.die()
	g := a.current()
	a.closeParts(ctx, g.parts)
	a.background.Wait()
	a.leaveFleet()
	a.closeTracer(g.tracer)
}

// closeParts closes pools together, and then what they dial with. It returns how
// many places were in use when they were cut.
func (a *App) closeParts(ctx context.Context, parts []*part) (cut int) {
	var wg sync.WaitGroup
	var sum atomic.Int64
	for _, p := range parts {
		wg.Go(func() { sum.Add(int64(p.ssp.Pool().Close(ctx))) })
	}
	wg.Wait()
	for _, p := range parts {
		p.dialer.dial.Close()
	}
	return int(sum.Load())
}
