package scenario

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"sync"
	"text/template"

	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/wire/syntax"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

// Outcome holds the measurements of a scenario.
type Outcome struct {
	Scenario string                     `json:"scenario"`
	Load     *load.Result               `json:"load"`
	Proxy    *rig.Usage                 `json:"proxy,omitempty"` // usage of the process under test, if known
	SSPs     map[string]sspsim.Counters `json:"ssps,omitempty"`
	Verdicts []results.Verdict          `json:"verdicts,omitempty"`
	Without  *Outcome                   `json:"without,omitempty"` // of adbuffer.compare_without
}

// errRemote refuses a target on another machine.
var errRemote = errors.New("is not on this machine; loading other people's servers is an attack, so it needs --allow-remote")

// Run executes s. If the error is not nil, the outcome is nil, or holds the measurements until
// the error. An interruption is an error only if there are no measurements yet.
func Run(ctx context.Context, r *rig.Rig, s *Scenario, allowRemote bool, progress func(load.Progress)) (out *Outcome,
	err error) {
	err = r.Do(ctx, func() {
		u := rig.Must(url.Parse(s.Target.URL))(r)
		if s.Target.URL != "" && !allowRemote && !syntax.IsLoopbackHost(u.Hostname()) {
			r.Check(fmt.Errorf("target.url: %s %w", u.Hostname(), errRemote))
		}
		if s.Adbuffer.Config != "" {
			r.Build()
		}
		setup := s.setup()
		st := r.Start(setup)
		defer st.Stop()
		var before load.Usage
		if st.PID != 0 {
			before, err = load.ReadTree(st.PID)
			if err != nil {
				r.Check(fmt.Errorf("target.pid: %w", err))
			}
		}
		sims := map[string]*rig.SimulatedSSP{}
		for i, ssp := range setup.SSPs {
			sims[ssp.Name] = st.SSPs[i]
		}
		var result *load.Result
		var failed error
		s.changing(r.Ctx, sims, func() { result, failed = st.Generate(s.Plan(), progress) })
		if result != nil {
			out = &Outcome{Scenario: s.Name, Load: result, SSPs: map[string]sspsim.Counters{}}
			// If the process has exited, the failed requests show it.
			if after, err := load.ReadTree(st.PID); st.PID != 0 && err == nil {
				used := st.Used(before, after, result.Whole, result.Phases)
				out.Proxy = &used
			}
			for name, sim := range sims {
				out.SSPs[name] = sim.Counters()
			}
			if e := s.Expect.Shape; e != nil {
				out.Verdicts = e.judge(s.Plan(), result, out.SSPs[e.SSP].MaxPerSecond, lossOf(r, st.Adbuffer, e.SSP))
			}
		}
		r.Check(failed)
	})
	if err == nil && s.Adbuffer.CompareWithout != "" {
		out.Without, err = Run(ctx, r, s.without(), allowRemote, progress)
	}
	if out != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil
	}
	return out, err
}

// setup returns the setup of the scenario. If the target is an SSP, it is the first SSP of the setup.
func (s *Scenario) setup() rig.Setup {
	t := rig.Setup{URL: s.Target.URL, CAFile: s.Target.CAFile, PID: s.Target.PID, Anywhere: true,
		Config: rig.Config{Text: s.Adbuffer.Config, Cores: s.Adbuffer.Cores}}
	for _, ssp := range s.SSPs {
		at := len(t.SSPs)
		if ssp.Name == s.Target.SSP {
			t.Program, at = "direct", 0
		}
		t.SSPs = slices.Insert(t.SSPs, at, &rig.SSP{Name: ssp.Name, Speaks: ssp.Protocol,
			Behaviour: ssp.Behaviour.Behaviour, Seed: ssp.Seed, Cores: ssp.Cores})
	}
	return t
}

// changing applies the changes of the scenario at their times, until load returns.
func (s *Scenario) changing(ctx context.Context, sims map[string]*rig.SimulatedSSP, load func()) {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, c := range s.Changes {
		running.Go(func() {
			rig.Sleep(ctx, c.At)
			if ctx.Err() == nil {
				sims[c.SSP].Patch(c.Behaviour.JSON)
			}
		})
	}
	load()
	stop()
	running.Wait()
}

//go:embed outcome.txt
var outcomeText string

var outcomeTemplate = template.Must(template.New("outcome").Funcs(template.FuncMap{"mib": results.MiB,
	"percent": func(share float64) string { return fmt.Sprintf("%.0f %%", share*100) }}).Parse(outcomeText))

// P99Ratio returns p99 as a multiple of that of Without.
func (o *Outcome) P99Ratio() float64 {
	return o.Load.Whole.Latency.P99 / o.Without.Load.Whole.Latency.P99
}

// Broken returns an error that names the broken promises, or nil.
func (o *Outcome) Broken() error { return (&results.Report{Verdicts: o.Verdicts}).Broken() }

// Print writes the outcome as text.
func (o *Outcome) Print(w io.Writer) error { return outcomeTemplate.Execute(w, o) }

// Table returns the figures of all phases and classes as Markdown.
func (o *Outcome) Table() string {
	r := o.Load
	t := results.Table{Title: o.Scenario, Columns: []string{"phase", "seconds", "offered", "answered", "failed",
		"answers/s", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms"}}
	var row func(name string, s load.Summary)
	row = func(name string, s load.Summary) {
		t.Add(r.Doubts, name, s.Seconds, s.Offered, s.Answered, s.Failed, s.Rate, s.Latency.P50, s.Latency.P90,
			s.Latency.P99, s.Latency.P999, s.Latency.Max)
		for _, class := range s.Classes {
			row("  "+class.Name, class)
		}
	}
	whole := r.Whole.Name
	if len(r.Phases) > 1 {
		whole = "all recorded"
		for _, p := range r.Phases {
			row(p.Name, p)
		}
	}
	row(whole, r.Whole)
	return t.Markdown()
}
