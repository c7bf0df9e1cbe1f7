// Package chaos sends mixed traffic through adbuffer while everything around it changes: SSPs fail
// in every way, clients are hostile, and adbuffer is reloaded and replaced. At the end it reports
// which promises held.
package chaos

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/tests"
)

// options are the flags of chaos.
type options struct {
	length time.Duration // 0 means fullLength times the scale
	seed   uint64        // of all random choices; 0 draws one
	// patience is how long a healthy SSP may take to respond. If patience is more than defaultPatience, no breaker
	// counts a request as failed before patience has passed.
	patience time.Duration
	only     string // selects the attacks and the behaviours whose names contain this text; "" selects all
	overload bool   // adbuffer may refuse requests while it has too little CPU, and reloads switch its dry run
}

// fullLength is the length of a run at scale 1.
const fullLength = 20 * time.Minute

const (
	allowance       = time.Second // how much later than its deadline a response may come: the machine is shared
	defaultPatience = 1500 * time.Millisecond
	meanThink       = 60 * time.Millisecond // a client's mean pause between two requests
)

// run is one run of chaos.
type run struct {
	*rig.Rig
	options   options
	began     time.Time
	log       *requestLog
	broken    *brokenPromises
	ssps      []*ssp
	instances []*instance

	cert      *rig.Certificate // of the encrypted instances
	clientCA  string           // file of the authority of clients' certificates
	extra     [][]byte         // certificates of a long chain
	longChain *tls.Config      // of clients
	resolver  *resolver        // nil if the machine has no mount namespaces

	attacks []attack   // those that the options select
	mass    sync.Mutex // held by an attack that uses many connections
	group   group

	tally, behavioursSeen, attacksSeen tally
	overrun                            overrun
	excused                            tally                                   // requests that a stall excused, by promise
	healthy                            struct{ sent, succeeded atomic.Uint64 } // requests to healthy SSPs

	// Clients and changes hold gate for reading while they have work in flight. A pause takes it for
	// writing. pausing asks clients to close their connections early.
	gate    sync.RWMutex
	pausing atomic.Bool
	resumed atomic.Int64 // when the last pause ended, in nanoseconds since 1970
}

// Command returns the command of chaos.
func Command() tests.Command {
	var o options
	return tests.Command{Name: "chaos", Short: "Everything at once: failing SSPs, hostile clients, reloads, hand-overs",
		Question: "Do adbuffer's promises hold while SSPs fail in every way, clients are hostile, and adbuffer is reloaded and replaced?",
		Long: `Sends mixed traffic over HTTP/1, pipelined, TLS and HTTP/2 in all five modes to SSPs whose
behaviour changes all the time, beside hostile clients, reloads and hand-overs. Each request
carries a number that its response must echo, and SSPs count the POSTs that they process.
Now and then all clients pause, and what adbuffer still holds is measured. The exit status
is 1 if a promise was broken.`,
		Test:    func(e *rig.Rig) { chaos(e, o) },
		Example: "  go run ./loadtest chaos --for 30m\n  go run ./loadtest chaos --for 2m --seed 42",
		Flags:   o.addFlags, Check: o.check,
	}
}

func (o *options) addFlags(f *pflag.FlagSet) {
	f.DurationVar(&o.length, "for", 0, "how long; default: 20 minutes times --scale")
	f.Uint64Var(&o.seed, "seed", 0, "of all that is drawn; default: drawn and printed")
	f.DurationVar(&o.patience, "patience", defaultPatience, "how long a healthy SSP may take to respond; a slow machine needs more")
	f.StringVar(&o.only, "only", "", "only the attacks and the SSPs' behaviours with this `text` in their names")
	f.BoolVar(&o.overload, "overload", false, "adbuffer may refuse requests while it has too little CPU")
}

// minLength is the shortest run: each third of it has one pause, and traffic before the pause.
const minLength = 20 * time.Second

func (o *options) check(f *pflag.FlagSet) error {
	if f.Changed("for") && o.length < minLength {
		return fmt.Errorf("--for %v: must be at least %v", o.length, minLength)
	}
	if o.patience < time.Millisecond {
		return errors.New("--patience must be at least 1ms")
	}
	return nil
}

func chaos(e *rig.Rig, o options) {
	if o.length == 0 {
		o.length = e.Time(fullLength, time.Minute)
	}
	for o.seed == 0 {
		o.seed = rand.Uint64() >> 32
	}
	e.Say("chaos: seed %d, for %v", o.seed, o.length)
	r := &run{Rig: e, options: o, broken: &brokenPromises{say: e.Say}}
	r.log = newRequestLog(len(sspKinds), r.broken)
	r.Check(r.chooseAttacks())
	defer func() {
		for _, s := range r.ssps {
			for _, sim := range s.sims {
				sim.Close()
			}
		}
	}()
	stop := r.startResolver()
	defer stop()
	r.extra = rig.Must(sameNamed())(r.Rig)
	r.startSSPs()
	r.startInstances()
	r.all()
	for _, st := range r.instances {
		r.end(st)
	}
	r.checkUnanswered()
	r.report(e.Rep)
}

// all runs clients, SSPs and changes to the end of the run.
func (r *run) all() {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	ctx, stop := context.WithCancel(r.Ctx)
	defer stop()
	source := rand.New(rand.NewPCG(r.options.seed, 1))
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
	start(func(rnd *rand.Rand) { r.failResolver(ctx, rnd) })
	for _, st := range r.instances {
		start(func(rnd *rand.Rand) { r.change(ctx, st, rnd) })
		clients := func(n int, use func(ctx context.Context, st *instance, rnd *rand.Rand) error) {
			for range n {
				start(func(rnd *rand.Rand) { r.client(ctx, st, rnd, use) })
			}
		}
		if len(r.attacks) > 0 {
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
	// All clients pause several times.
	n := min(max(3, int(r.options.length/(20*time.Second))), 30)
	for i := 1; i <= n; i++ {
		rig.Sleep(ctx, time.Until(r.began.Add(r.options.length*time.Duration(i)/time.Duration(n)-settleTime-time.Second)))
		r.pause()
	}
}

// client is one client until the context ends. It calls use for one connection after the other.
func (r *run) client(ctx context.Context, st *instance, rnd *rand.Rand, use func(context.Context, *instance, *rand.Rand) error) {
	for ctx.Err() == nil {
		var err error
		r.whileRunning(func() { err = use(ctx, st, rnd) })
		if err != nil && ctx.Err() == nil {
			r.newConnectionEnded(st, nil, "%v", err)
			rig.Sleep(ctx, time.Second)
		}
		r.think(ctx, rnd)
	}
}

func (r *run) pause() {
	r.pausing.Store(true)
	r.gate.Lock()
	defer func() {
		r.pausing.Store(false)
		r.resumed.Store(time.Now().UnixNano())
		r.gate.Unlock()
	}()
	rig.Sleep(r.Ctx, settleTime)
	for _, st := range r.instances {
		r.sampleAtRest(st)
	}
}

// watch samples the instances each second, and prints the progress of the run.
func (r *run) watch(ctx context.Context) {
	const sayEvery = 10
	var before uint64
	for n := 1; ; n++ {
		rig.Sleep(ctx, time.Second)
		if ctx.Err() != nil {
			return
		}
		// During a pause a scrape would add its page and its compressor to the heap that is judged.
		r.whileRunning(func() {
			for _, st := range r.instances {
				s, sums, err := st.take()
				switch {
				case err == nil:
					r.observe(st, s, sums)
				case !st.handsOver && !st.starved(): // a process that is being replaced may not respond
					r.broken.add(answers, "%v", err)
				}
			}
		})
		if n%sayEvery == 0 {
			_, _, sum := r.tally.all()
			_, _, broken := r.broken.all()
			r.say("%4.0f of %.0f s  %8d requests, %d in the last %d s  %d broken promises", time.Since(r.began).Seconds(),
				r.options.length.Seconds(), sum, sum-before, sayEvery, broken)
			before = sum
		}
	}
}

// whileRunning calls fn when no pause is in progress, and keeps a pause waiting until fn returns.
func (r *run) whileRunning(fn func()) {
	r.gate.RLock()
	defer r.gate.RUnlock()
	fn()
}

// think is a client's pause between two requests.
func (r *run) think(ctx context.Context, rnd *rand.Rand) {
	rig.Sleep(ctx, time.Duration(rnd.ExpFloat64()*float64(meanThink)))
}

func (r *run) say(format string, args ...any) { r.Say("chaos: "+format, args...) }
