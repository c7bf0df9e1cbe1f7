package load

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Counts are of connections, warm-up included.
type Counts struct {
	TCP        uint64 `json:"tcp_handshakes"`
	TLS        uint64 `json:"tls_handshakes"`
	Resumed    uint64 `json:"tls_resumed"` // of the TLS handshakes
	Reused     uint64 `json:"reused"`      // requests on a connection that had carried one
	ClosedIdle uint64 `json:"closed_idle"` // connections that the peer closed between requests
}

func (c *Counts) add(o Counts) {
	c.TCP += o.TCP
	c.TLS += o.TLS
	c.Resumed += o.Resumed
	c.Reused += o.Reused
	c.ClosedIdle += o.ClosedIdle
}

// Result is what came of a run.
type Result struct {
	Started     time.Time `json:"started"`
	Whole       Summary   `json:"whole"` // the recorded phases
	Phases      []Summary `json:"phases"`
	Timeline    []Tick    `json:"timeline"`
	Connections Counts    `json:"connections"`
	Generator   Generator `json:"generator"`
	Interrupted bool      `json:"interrupted"`
	// Doubts are reasons not to trust the figures; none is as it should be.
	Doubts []string `json:"doubts"`
}

// Generator is what the load cost its maker.
type Generator struct {
	CPUSeconds float64 `json:"cpu_seconds"`
	Busiest    float64 `json:"busiest_thread"` // share of the time that the busiest thread ran
	Core       float64 `json:"core_busy"`      // share of the time that its cores were busy, with all processes
	LagP99     float64 `json:"lag_p99_ms"`     // how late it looked at what was due; open loops
}

// Run carries the plan out. The result holds what was measured until then also
// where the error is not nil, and where ctx was cancelled. report, which may be
// nil, is called once an interval.
func Run(ctx context.Context, plan Plan, report func(Progress)) (*Result, error) {
	if err := plan.check(); err != nil {
		return nil, err
	}
	rec := newRecorder(&plan, report)
	if plan.tls != nil {
		return runWorkers(ctx, &plan, rec)
	}
	return runLoops(ctx, &plan, rec)
}

func runLoops(ctx context.Context, plan *Plan, rec *recorder) (*Result, error) {
	var loops []*loop
	for part := range plan.Threads {
		// Each its own: connecting writes to it.
		addr, err := resolve(plan.Addr)
		if err != nil {
			return nil, err
		}
		l, err := newLoop(plan, part, addr, rec)
		if err != nil {
			return nil, err
		}
		defer l.poller.Close()
		loops = append(loops, l)
	}
	interrupted := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	g := new(gauge)
	var connected, done sync.WaitGroup
	connected.Add(len(loops))
	errs := make([]error, len(loops))
	for i, l := range loops {
		done.Go(func() {
			defer l.closeAll()
			unlock := preciseTimers()
			defer unlock()
			errs[i] = l.connect(ctx)
			if errs[i] != nil {
				cancel()
			}
			connected.Done()
			connected.Wait()
			if errs[i] != nil || ctx.Err() != nil {
				return
			}
			g.begin()
			started, cpu := time.Now(), threadCPU()
			if errs[i] = l.run(ctx); errs[i] != nil {
				cancel()
			}
			g.thread(threadCPU()-cpu, time.Since(started))
		})
	}
	done.Wait()
	r := &Result{Started: g.began, Generator: g.result(), Interrupted: interrupted.Err() != nil}
	for _, l := range loops {
		r.Connections.add(l.counts)
	}
	r.finish(rec)
	return r, first(errs)
}

// closeAll closes what is open. The peers see the end of the stream.
func (l *loop) closeAll() {
	for _, c := range l.conns {
		closeSocket(c)
	}
}

func runWorkers(ctx context.Context, plan *Plan, rec *recorder) (*Result, error) {
	w := newWorkers(plan, rec)
	g := new(gauge)
	g.begin()
	started, cpu := time.Now(), processCPU()
	err := w.run(ctx)
	// Goroutines move among threads: what counts is the share of all cores that
	// the process may use.
	g.thread((processCPU()-cpu)/time.Duration(max(len(allowedCores()), 1)), time.Since(started))
	r := &Result{Started: w.base, Connections: w.counts, Generator: g.result(), Interrupted: ctx.Err() != nil}
	r.finish(rec)
	return r, err
}

// finish sums up what was recorded.
func (r *Result) finish(rec *recorder) {
	plan := rec.plan
	if !r.Started.IsZero() {
		rec.roll(time.Since(r.Started)) // the rest, behind the last interval
	}
	var phases []stretch
	rest := plan.length()
	if !plan.Open && plan.Requests > 0 || r.Interrupted {
		rest = min(rest, rec.last) // the phases ended with the requests
	}
	for _, p := range plan.Phases {
		d := min(p.Duration, rest)
		rest -= d
		phases = append(phases, stretch{Name: p.Name, Duration: d, Recorded: !p.Unrecorded})
	}
	r.Whole, r.Phases = rec.summarize(phases)
	r.Timeline = rec.timeline
	r.Generator.LagP99 = float64(rec.lag.ValueAtQuantile(99)) / 1e6
	r.Doubts = doubts(plan, r)
}

func first(errs []error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return nil
}

// gauge measures what the generator itself costs while it runs.
type gauge struct {
	mu      sync.Mutex // guards the fields below
	began   time.Time
	cpu     time.Duration
	cores   cores
	busiest float64
}

func (g *gauge) begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.began.IsZero() {
		g.began, g.cpu, g.cores = time.Now(), processCPU(), readCores()
	}
}

func (g *gauge) thread(cpu, wall time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if wall > 0 {
		g.busiest = max(g.busiest, float64(cpu)/float64(wall))
	}
}

func (g *gauge) result() Generator {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.began.IsZero() {
		return Generator{}
	}
	return Generator{CPUSeconds: (processCPU() - g.cpu).Seconds(), Busiest: g.busiest,
		Core: readCores().BusySince(g.cores, allowedCores())}
}

func isNumber(text []byte, n uint64) bool {
	var want [numberDigits]byte
	putNumber(want[:], n)
	return string(text) == string(want[:])
}
