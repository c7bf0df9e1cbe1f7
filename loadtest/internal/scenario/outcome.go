package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/internal/syntax"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/stage"
)

// Outcome holds the measurements of a scenario.
type Outcome struct {
	Scenario string                     `json:"scenario"`
	Load     *load.Result               `json:"load"`
	Proxy    *Usage                     `json:"proxy,omitempty"` // usage of the process under test, if known
	SSPs     map[string]sspsim.Counters `json:"ssps,omitempty"`
}

// Usage is the resource use of the process under test, including the warm-up.
type Usage struct {
	PID           int     `json:"pid"`
	CPUSeconds    float64 `json:"cpu_seconds"`
	CPUPerRequest float64 `json:"cpu_us_per_request"`
	RSS           int64   `json:"rss_bytes"`
	PeakRSS       int64   `json:"peak_rss_bytes"`
	Files         int     `json:"open_files"`
}

// errRemote refuses a target on another machine.
var errRemote = errors.New("is not on this machine; load on others' servers is an attack, so it must be asked for with --allow-remote")

// Run executes s. If the error is not nil, the outcome is nil or holds the measurements until
// the error.
func Run(ctx context.Context, e *stage.Env, s *Scenario, allowRemote bool, progress func(load.Progress)) (*Outcome,
	error) {
	u, err := url.Parse(s.Target.URL)
	if err != nil {
		return nil, err
	}
	if s.Target.URL != "" && !allowRemote && !syntax.IsLoopbackHost(u.Hostname()) {
		return nil, fmt.Errorf("target.url: %s %w", u.Hostname(), errRemote)
	}
	if s.Adbuffer.Config != "" {
		if err := e.Build(ctx); err != nil {
			return nil, err
		}
	}
	st, err := e.Start(ctx, s.setup())
	if err != nil {
		return nil, err
	}
	defer st.Stop()
	var before load.Usage
	if st.PID != 0 {
		before, err = load.ReadTree(st.PID)
		if err != nil {
			return nil, fmt.Errorf("target.pid: %w", err)
		}
	}
	stop := s.change(ctx)
	result, err := st.Generate(ctx, s.Plan(), progress)
	err = errors.Join(err, stop())
	if result == nil {
		return nil, err
	}
	out := &Outcome{Scenario: s.Name, Load: result}
	// If the process has exited, the failed requests show it.
	if after, readErr := load.ReadTree(st.PID); st.PID != 0 && readErr == nil {
		out.Proxy = usage(st.PID, before, after, result)
	}
	for _, ssp := range s.SSPs {
		c, countErr := ssp.Sim().Counters()
		if out.SSPs == nil {
			out.SSPs = map[string]sspsim.Counters{}
		}
		out.SSPs[ssp.Name], err = c, errors.Join(err, countErr)
	}
	return out, err
}

func (s *Scenario) setup() stage.Setup {
	t := stage.Setup{SSPs: s.SSPs, URL: s.Target.URL, CAFile: s.Target.CAFile, PID: s.Target.PID, Anywhere: true,
		Config: stage.Config{Text: s.Adbuffer.Config, Cores: s.Adbuffer.Cores}}
	if s.Target.SSP != "" {
		t.Program, t.Direct = "direct", s.Target.SSP
	}
	return t
}

func usage(pid int, before, after load.Usage, r *load.Result) *Usage {
	var answered uint64
	for _, p := range r.Phases {
		answered += p.Answered
	}
	cpu := after.CPU - before.CPU
	return &Usage{PID: pid, CPUSeconds: cpu.Seconds(), CPUPerRequest: cpu.Seconds() * 1e6 / float64(max(answered, 1)),
		RSS: after.RSS, PeakRSS: after.PeakRSS, Files: after.Files}
}

// change applies the changes of the scenario at their times, until stop is called. stop returns their
// errors.
func (s *Scenario) change(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	errs := make([]error, len(s.Changes))
	for i, c := range s.Changes {
		running.Go(func() {
			stage.Sleep(ctx, c.At)
			if ctx.Err() == nil {
				errs[i] = stage.Named(s.SSPs, c.SSP).Sim().Patch(c.JSON)
			}
		})
	}
	return func() error {
		cancel()
		running.Wait()
		return errors.Join(errs...)
	}
}

// tick is the interval between two reports of progress.
const tick = time.Second
