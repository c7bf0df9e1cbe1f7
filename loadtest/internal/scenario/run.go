package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"

	"github.com/spf13/pflag"

	"adbuffer/internal/wire/syntax"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/tests"
)

// Command returns the command that runs a scenario.
func Command() tests.Command {
	var file string
	var allowRemote bool
	return tests.Command{Name: "run", Short: "Run one scenario", Question: "What happens under this load?",
		Long: `Runs a scenario, which is a YAML file. Starts the simulated SSPs and the adbuffer that the
scenario names, or uses a server that is already running. Sends the scenario's requests, and
prints rates, latencies, errors by kind, and the CPU and memory that the server used.

In an open loop, the latency of a request counts from the moment at which the request was
due, so that it includes the time in which the server stalled. Figures that cannot be
trusted are marked.

The exit status is 1 if the scenario is wrong, the server refuses connections, or a promise
of expect.shape was broken.`,
		Example: "  go run ./loadtest run loadtest/scenarios/steady.yaml\n  go run ./loadtest run loadtest/scenarios/shaping.yaml --scale 0.5",
		File:    &file, Test: func(e *rig.Rig) { run(e, file, allowRemote) },
		Flags: func(f *pflag.FlagSet) {
			f.BoolVar(&allowRemote, "allow-remote", false, "load a server on another machine; get its owner's permission first")
		},
	}
}

// errRemote refuses a target on another machine.
var errRemote = errors.New("is not on this machine; loading other people's servers is an attack, so it needs --allow-remote")

func isServer(text string) bool {
	u, err := url.Parse(text)
	return err == nil && text == "http://"+u.Host && u.Hostname() != "" && u.Port() != ""
}

func run(e *rig.Rig, file string, allowRemote bool) {
	s := rig.Must(readFile(file))(e)
	if host := rig.Must(url.Parse(s.Target.URL))(e).Hostname(); host != "" && !allowRemote && !syntax.IsLoopbackHost(host) {
		e.Check(fmt.Errorf("target.url: %s %w", host, errRemote))
	}
	if s.Adbuffer.Config != "" {
		e.Build()
	}
	e.ProxyCores, e.LoadCores = "", "" // no program has a core of its own
	e.Rep.Title = s.Name
	p99 := s.run(e)
	if s.Adbuffer.CompareWithout != "" {
		e.Rep.Note("p99 is %.3f of that without %q.", p99/s.without().run(e), s.Adbuffer.CompareWithout)
	}
}

// run runs s, adds its figures to the report, and returns p99.
func (s *Scenario) run(e *rig.Rig) (p99 float64) {
	setup := rig.Setup{URL: s.Target.URL, PID: s.Target.PID, Anywhere: true, Config: rig.Config{Text: s.Adbuffer.Config}}
	for _, ssp := range s.SSPs {
		setup.SSPs = append(setup.SSPs, &rig.SSP{Name: ssp.Name, Speaks: ssp.Protocol, Behaviour: ssp.Behaviour.Behaviour})
	}
	st := e.Start(setup)
	defer st.Stop()
	sims := map[string]*rig.SimulatedSSP{}
	for i, ssp := range s.SSPs {
		sims[ssp.Name] = st.SSPs[i]
	}
	plan := s.plan(e.Scale)
	generate := rig.GenerateWatched(plan, false, func(p load.Progress) {
		e.Say("%5.0f s  %8d responses  %6d errors  p50 %8.2f ms  p99 %8.2f ms", p.Second, p.Answered, p.Errors, p.P50, p.P99)
	})
	f := st.Beside(generate, func(ctx context.Context) {
		var changes sync.WaitGroup
		for _, c := range s.Changes {
			changes.Go(func() {
				rig.Sleep(ctx, scaled(c.At, e.Scale))
				if ctx.Err() == nil {
					sims[c.SSP].Patch(c.Behaviour.JSON)
				}
			})
		}
		changes.Wait()
	})
	s.show(e.Rep, f)
	t := e.Rep.Table("SSPs", "SSP", "TCP handshakes", "TLS handshakes", "requests", "at most at once")
	for _, ssp := range s.SSPs {
		c := sims[ssp.Name].Counters()
		t.Add(nil, ssp.Name, c.Connections, c.Handshakes, c.Requests, c.MaxInFlight)
	}
	if shape := s.Expect.Shape; shape != nil {
		shape.judge(e.Rep, plan, f, sims[shape.SSP].Counters().MaxPerSecond, lossOf(e, st.Adbuffer, shape.SSP))
	}
	return f.Latency.P99
}

// show adds the figures of all phases and classes.
func (s *Scenario) show(rep *results.Report, f *rig.Figures) {
	t := rep.Table(s.Name, "phase", "seconds", "offered", "answered", "failed", "responses/s", "p50 ms", "p99 ms", "p99.9 ms", "max ms")
	var row func(doubts []string, name string, s load.Summary)
	row = func(doubts []string, name string, s load.Summary) {
		t.Add(doubts, name, s.Seconds, s.Offered, s.Answered, s.Failed, s.Rate, s.Latency.P50, s.Latency.P99, s.Latency.P999, s.Latency.Max)
		for _, class := range s.Classes {
			row(nil, "  "+class.Name, class)
		}
	}
	for _, p := range f.Phases {
		row(nil, p.Name, p)
	}
	row(f.Doubts, "all recorded", f.Summary)
	rep.Note("Of the requests %s, over %d connections.", f.Failures(), f.Connections)
	if f.RSS > 0 {
		rep.Note("The process under test used %.1f µs of CPU a request, and has %s in memory.", f.CPUus, results.MiB(f.RSS))
	}
}
