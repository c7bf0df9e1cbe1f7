// Package chaos sends mixed traffic through adbuffer while everything around it changes: SSPs fail
// in every way, clients are hostile, and adbuffer is reloaded and replaced. At the end it reports
// which promises held.
package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/stage"
)

// Options of a run.
type Options struct {
	// For is the length of the run. 0 means fullLength times the scale.
	For time.Duration
	// Seed determines all random choices. 0 draws a seed.
	Seed uint64
	// Allowance is how much later than its deadline a response may come. The machine is shared.
	Allowance time.Duration
	// Patience is how long a healthy SSP may take to respond. If it is more than DefaultPatience,
	// no breaker counts a request as failed before this time has passed.
	Patience time.Duration
	// Only selects the attacks and the behaviours of SSPs whose names contain it. "" selects all.
	Only string
	// Overload lets adbuffer refuse requests while it has too little CPU, and reloads switch its dry run.
	Overload bool
	// Think is the mean pause of a client between two requests.
	Think time.Duration
}

// fullLength is the length of a run at scale 1.
const fullLength = 20 * time.Minute

// Defaults of the options.
const (
	DefaultAllowance = time.Second
	DefaultPatience  = 1500 * time.Millisecond
	DefaultThink     = 60 * time.Millisecond
)

// LeastLength is the shortest run: each third of it has one pause, and traffic before the pause.
const LeastLength = 20 * time.Second

// run is one run of chaos.
type run struct {
	env       *stage.Env
	options   Options
	began     time.Time
	log       *requestLog
	broken    *brokenPromises
	ssps      []*ssp
	instances []*instance

	cert *rig.Certificate // of the encrypted instances

	http1Attacks, http2Attacks []attack
	mass                       sync.Mutex // held by the one attack that uses many connections
	group                      group

	tally, behavioursSeen, attacksSeen tally
	overrun                            overrun
	frozen                             time.Duration                           // how long the whole machine stood still; written by watchStalls
	excused                            [promises]atomic.Int64                  // requests that a stall excused
	healthy                            struct{ sent, succeeded atomic.Uint64 } // requests to healthy SSPs
	logBytes                           atomic.Uint64

	// Clients and changes hold gate for reading while they have work in flight. A pause takes it for
	// writing. pausing asks clients to close their connections early.
	gate    sync.RWMutex
	pausing atomic.Bool
	resumed atomic.Int64 // when the last pause ended, in nanoseconds since 1970

	stop context.CancelCauseFunc // ends the run early
}

// Run runs chaos and returns its report.
func Run(ctx context.Context, e *stage.Env, o Options) (*results.Report, error) {
	if o.For == 0 {
		o.For = e.Time(fullLength, time.Minute)
	}
	for o.Seed == 0 {
		o.Seed = rand.Uint64() >> 32
	}
	rep := e.Report("chaos", "Everything at once",
		"Do adbuffer's promises hold while SSPs fail in every way, clients are hostile, and adbuffer is reloaded and replaced?")
	e.Say("chaos: seed %d, for %v", o.Seed, o.For)
	r := &run{env: e, options: o, began: time.Now(), broken: &brokenPromises{say: e.Say}}
	r.log = newRequestLog(len(sspKinds), r.broken)
	if err := r.chooseAttacks(); err != nil {
		return nil, err
	}
	defer func() {
		for _, s := range r.ssps {
			s.Close()
			for _, other := range s.others {
				other.Close()
			}
		}
	}()
	if err := r.startSSPs(); err != nil {
		return nil, err
	}
	if err := r.startInstances(ctx); err != nil {
		return nil, err
	}
	if err := r.all(ctx); err != nil {
		return nil, err
	}
	for _, st := range r.instances {
		r.end(st)
	}
	r.checkUnanswered()
	r.report(rep)
	return rep, nil
}

// all runs clients, SSPs and changes to the end of the run.
func (r *run) all(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r.stop = stop
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer stop(nil)
	source := rand.New(rand.NewPCG(r.options.Seed, 1))
	start := func(task func(rnd *rand.Rand)) {
		rnd := rand.New(rand.NewPCG(source.Uint64(), source.Uint64()))
		tasks.Go(func() { task(rnd) })
	}
	for _, st := range r.instances {
		st.stalls.tick.Store(time.Now().UnixNano())
	}
	tasks.Go(func() { r.watchStalls(ctx) })
	tasks.Go(func() { r.watch(ctx) })
	r.began = time.Now()
	r.resumed.Store(r.began.UnixNano())
	for _, s := range r.mixed() {
		start(func(rnd *rand.Rand) { r.changeBehaviours(ctx, s, rnd) })
	}
	start(func(rnd *rand.Rand) { r.failPrimaries(ctx, rnd) })
	for _, st := range r.instances {
		start(func(rnd *rand.Rand) { r.change(ctx, st, rnd) })
		clients := func(n int, use func(ctx context.Context, st *instance, rnd *rand.Rand) error) {
			for range n {
				start(func(rnd *rand.Rand) { r.client(ctx, st, rnd, use) })
			}
		}
		if len(r.http1Attacks)+len(r.http2Attacks) > 0 {
			clients(1, r.attack)
		}
		clients(1, r.useCredit)
		for _, m := range clientKinds {
			clients(m.clients, func(ctx context.Context, st *instance, rnd *rand.Rand) error { return r.useHTTP1(ctx, st, m, rnd) })
		}
		if st.encrypted {
			clients(http2Clients, r.useHTTP2)
		}
	}
	return r.pauses(ctx)
}

// client is one client until the context ends. It calls use for one connection after the other.
func (r *run) client(ctx context.Context, st *instance, rnd *rand.Rand, use func(context.Context, *instance, *rand.Rand) error) {
	for ctx.Err() == nil {
		if err := r.whileRunning(func() error { return use(ctx, st, rnd) }); err != nil && ctx.Err() == nil {
			r.newConnectionEnded(st, nil, "%v", err)
			stage.Sleep(ctx, time.Second)
		}
		r.think(ctx, rnd)
	}
}

// pauses makes all clients pause several times, and samples the processes during each pause. It
// returns at the end of the run.
func (r *run) pauses(ctx context.Context) error {
	n := min(max(3, int(r.options.For/(20*time.Second))), 30)
	for i := 1; i <= n; i++ {
		stage.Sleep(ctx, time.Until(r.began.Add(r.options.For*time.Duration(i)/time.Duration(n)-settleTime-time.Second)))
		if err := r.pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// pause samples all instances while clients pause.
func (r *run) pause(ctx context.Context) error {
	r.pausing.Store(true)
	r.gate.Lock()
	defer func() {
		r.pausing.Store(false)
		r.resumed.Store(time.Now().UnixNano())
		r.gate.Unlock()
	}()
	stage.Sleep(ctx, settleTime)
	for _, st := range r.instances {
		if ctx.Err() != nil {
			break
		}
		if err := r.sampleAtRest(ctx, st); err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: %w: %s", st.name, err, st.process.Load().LastLog())
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// watch samples the instances each second, and prints the progress of the run.
func (r *run) watch(ctx context.Context) {
	const sayEvery = 10
	var before uint64
	for n := 1; ; n++ {
		stage.Sleep(ctx, time.Second)
		if ctx.Err() != nil {
			return
		}
		// During a pause a scrape would add its page and its compressor to the heap that is judged.
		_ = r.whileRunning(func() error {
			for _, st := range r.instances {
				// A process that is being replaced may not respond. Only samples of pauses are judged.
				if s, sums, err := st.take(); err == nil {
					r.observe(st, s, sums)
				}
			}
			return nil
		})
		if n%sayEvery == 0 {
			_, _, sum := r.tally.all()
			r.env.Say("chaos: %4.0f of %.0f s  %8d requests, %d in the last %d s  %d broken promises  %s", time.Since(r.began).Seconds(), r.options.For.Seconds(), sum, sum-before, sayEvery, r.broken.total(), r.holds())
			before = sum
		}
	}
}

// holds returns the memory and the open files of each process.
func (r *run) holds() string {
	var parts []string
	for _, st := range r.instances {
		if len(st.busy) > 0 {
			s := st.busy[len(st.busy)-1]
			parts = append(parts, fmt.Sprintf("%.0f MiB %.0f files", s[rss]/(1<<20), s[files]))
		}
	}
	return strings.Join(parts, ", ")
}

// whileRunning calls fn when no pause is in progress, and keeps a pause waiting until fn returns.
func (r *run) whileRunning(fn func() error) error {
	r.gate.RLock()
	defer r.gate.RUnlock()
	return fn()
}

// think is a client's pause between two requests.
func (r *run) think(ctx context.Context, rnd *rand.Rand) {
	stage.Sleep(ctx, time.Duration(rnd.ExpFloat64()*float64(r.options.Think)))
}

// fail stops the run because of an error that breaks no promise of adbuffer.
func (r *run) fail(err error) { r.stop(errors.Join(errors.New("chaos: cannot continue"), err)) }

func (r *run) say(format string, args ...any) { r.env.Say("chaos: "+format, args...) }
