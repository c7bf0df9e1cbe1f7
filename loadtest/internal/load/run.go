package load

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"
)

// Counts holds figures about connections, including the warm-up.
type Counts struct {
	TCP        uint64 `json:"tcp_handshakes"`
	TLS        uint64 `json:"tls_handshakes"`
	Reused     uint64 `json:"reused"`      // requests that were not the first on their connection
	ClosedIdle uint64 `json:"closed_idle"` // idle connections that the server closed
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
	Busiest    float64 `json:"busiest_thread"` // share of the time of its threads that the generator ran
	Core       float64 `json:"core_busy"`      // share of time that its cores were busy with any process
	LagP99     float64 `json:"lag_p99_ms"`     // delay of due requests in the generator; open loops only
}

// Run executes the plan. If ctx is cancelled or an error ends the run, the result holds the
// measurements until then. Run calls report, which may be nil, after each interval.
func Run(ctx context.Context, plan Plan, report func(Progress)) (*Result, error) {
	if err := plan.prepare(); err != nil {
		return nil, err
	}
	rec := newRecorder(&plan, report)
	g := newGenerator(&plan, rec)
	err := g.run(ctx)
	r := &Result{Started: g.base, Connections: rec.connections, Generator: g.cost.result()}
	r.finish(ctx, rec)
	return r, err
}

// cause returns the error that cancelled ctx. It is nil if the run was interrupted from outside.
func cause(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

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

func newGauge() gauge { return gauge{time.Now(), processCPU(), readCores(allowedCores())} }

// result compares the CPU time with that of all threads that may run at the same time, because goroutines
// move among threads.
func (g gauge) result() Generator {
	used, allowed := (processCPU() - g.cpu).Seconds(), allowedCores()
	threads := max(1, min(len(allowed), runtime.GOMAXPROCS(0)))
	return Generator{CPUSeconds: used, Busiest: used / time.Since(g.began).Seconds() / float64(threads),
		Core: readCores(allowed).busySince(g.cores)}
}
