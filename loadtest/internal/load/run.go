package load

import (
	"context"
	"runtime"
	"slices"
	"time"
)

// Result holds the measurements of a run.
type Result struct {
	Whole       Summary // sum of the recorded phases
	Phases      []Summary
	Connections uint64 // that were opened, including the warm-up
	Generator   Generator
	// Doubts are reasons for not trusting the figures.
	Doubts []string
}

// Generator holds the cost of the load generator.
type Generator struct {
	CPUSeconds float64
	Busiest    float64 // share of the time of its threads that the generator ran
	Core       float64 // share of time that its cores were busy with any process
	LagP99     float64 // delay of due requests in the generator, in milliseconds; open loops only
}

// Run executes the plan. It calls report, which may be nil, after each interval.
func Run(ctx context.Context, plan Plan, report func(Progress)) (*Result, error) {
	plan.prepare()
	rec := newRecorder(&plan, report)
	g := newGenerator(&plan, rec)
	if err := g.run(ctx); err != nil {
		return nil, err
	}
	r := &Result{Connections: rec.connections, Generator: g.cost.result()}
	phases := slices.Clone(plan.Phases)
	rest := plan.length()
	if !plan.Open && plan.Requests > 0 {
		rest = min(rest, rec.last) // the run ended before its phases
	}
	for i := range phases {
		phases[i].Duration = min(phases[i].Duration, rest)
		rest -= phases[i].Duration
	}
	r.Whole, r.Phases = rec.summarize(phases)
	r.Generator.LagP99 = float64(rec.lag.ValueAtQuantile(99)) / 1e6
	r.Doubts = doubts(&plan, r)
	return r, nil
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
