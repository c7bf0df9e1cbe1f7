package load

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Counts holds figures about connections, including the warm-up.
type Counts struct {
	TCP        uint64 `json:"tcp_handshakes"`
	TLS        uint64 `json:"tls_handshakes"`
	Resumed    uint64 `json:"tls_resumed"` // TLS handshakes that resumed a session
	Reused     uint64 `json:"reused"`      // requests that were not the first on their connection
	ClosedIdle uint64 `json:"closed_idle"` // idle connections that the server closed
}

func (c *Counts) add(o Counts) {
	c.TCP += o.TCP
	c.TLS += o.TLS
	c.Resumed += o.Resumed
	c.Reused += o.Reused
	c.ClosedIdle += o.ClosedIdle
}

// Result holds the measurements of a run.
type Result struct {
	Started     time.Time `json:"started"`
	Whole       Summary   `json:"whole"` // sum of the recorded phases
	Phases      []Summary `json:"phases"`
	Timeline    []Tick    `json:"timeline"`
	Connections Counts    `json:"connections"`
	Generator   Generator `json:"generator"`
	Interrupted bool      `json:"interrupted"`
	// Doubts are reasons for not trusting the figures.
	Doubts []string `json:"doubts"`
}

// Generator holds the cost of the load generator.
type Generator struct {
	CPUSeconds float64 `json:"cpu_seconds"`
	Busiest    float64 `json:"busiest_thread"` // share of time that the busiest thread ran
	Core       float64 `json:"core_busy"`      // share of time that its cores were busy with any process
	LagP99     float64 `json:"lag_p99_ms"`     // delay of due requests in the generator; open loops only
}

// Run executes the plan. If ctx is cancelled or an error ends the run, the result holds the
// measurements until then. Run calls report, which may be nil, after each interval.
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
		l, err := newLoop(plan, part, rec)
		if err != nil {
			return nil, err
		}
		defer l.close()
		loops = append(loops, l)
	}
	r := new(Result)
	err := together(ctx, loops, (*loop).connect)
	if err == nil && ctx.Err() == nil {
		g := newGauge()
		err = together(ctx, loops, (*loop).run)
		r.Started, r.Generator = g.began, g.result()
		r.Generator.Busiest = slices.MaxFunc(loops, func(a, b *loop) int { return cmp.Compare(a.busy, b.busy) }).busy
	}
	for _, l := range loops {
		r.Connections.add(l.counts)
	}
	r.finish(ctx, rec)
	return r, err
}

// together calls do for each loop on a goroutine of its own. The first error cancels the context
// of the others.
func together(ctx context.Context, loops []*loop, do func(*loop, context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	for _, l := range loops {
		running.Go(func() {
			if err := do(l, ctx); err != nil {
				cancel(err)
			}
		})
	}
	running.Wait()
	return cause(ctx)
}

// cause returns the error that cancelled ctx. It is nil if the run was interrupted from outside.
func cause(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func runWorkers(ctx context.Context, plan *Plan, rec *recorder) (*Result, error) {
	w := newWorkers(plan, rec)
	g := newGauge()
	err := w.run(ctx)
	r := &Result{Started: w.base, Connections: w.counts, Generator: g.result()}
	r.finish(ctx, rec)
	return r, err
}

// finish adds the summaries of the recorder to the result.
func (r *Result) finish(ctx context.Context, rec *recorder) {
	plan := rec.plan
	r.Interrupted = ctx.Err() != nil
	if !r.Started.IsZero() {
		rec.roll(time.Since(r.Started)) // the part after the last interval
	}
	phases := slices.Clone(plan.Phases)
	rest := plan.length()
	if !plan.Open && plan.Requests > 0 || r.Interrupted {
		rest = min(rest, rec.last) // the run ended before its phases
	}
	for i := range phases {
		phases[i].Duration = min(phases[i].Duration, rest)
		rest -= phases[i].Duration
	}
	r.Whole, r.Phases = rec.summarize(phases)
	r.Timeline = rec.timeline
	r.Generator.LagP99 = float64(rec.lag.ValueAtQuantile(99)) / 1e6
	r.Doubts = doubts(plan, r)
}

// gauge measures the cost of the generator since began.
type gauge struct {
	began time.Time
	cpu   time.Duration
	cores cores
}

func newGauge() gauge { return gauge{time.Now(), processCPU(), readCores()} }

// result takes Busiest from all cores that the process may use, because goroutines move among
// threads.
func (g gauge) result() Generator {
	used, allowed := (processCPU() - g.cpu).Seconds(), allowedCores()
	return Generator{CPUSeconds: used, Busiest: used / time.Since(g.began).Seconds() / float64(max(len(allowed), 1)),
		Core: readCores().BusySince(g.cores, allowed)}
}

func isNumber(text []byte, n uint64) bool {
	var want [numberDigits]byte
	putNumber(want[:], n)
	return string(text) == string(want[:])
}
