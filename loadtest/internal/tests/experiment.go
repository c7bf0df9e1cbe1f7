package tests

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/stage"
)

// Experiment is a load test that runs. It ends at its first error, as a test does with testing.T: Check
// ends the calling goroutine, and cancels Ctx for all others.
type Experiment struct {
	*stage.Env
	Ctx   context.Context
	Rep   *results.Report
	end   context.CancelCauseFunc
	doing atomic.Pointer[string] // the last text of say
}

// NewCommand returns the command of a load test, whose question the help and the report show. long may be "".
func NewCommand(name, short, question, long string, test func(*Experiment)) Command {
	return Command{Name: name, Short: short, Long: strings.TrimSpace(question + "\n\n" + long),
		Run: func(ctx context.Context, env *stage.Env) (*results.Report, error) {
			return perform(ctx, env, env.Report(name, short, question), test)
		}}
}

// perform performs a load test to its end or to its first error.
func perform(ctx context.Context, env *stage.Env, rep *results.Report, test func(*Experiment)) (*results.Report, error) {
	e := &Experiment{Env: env, Rep: rep}
	e.Ctx, e.end = context.WithCancelCause(ctx)
	defer e.end(nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		test(e)
	}()
	<-ended
	if err := context.Cause(e.Ctx); err != nil {
		return nil, err
	}
	return rep, nil
}

// Check ends the test if err is not nil.
func (e *Experiment) Check(err error) {
	if err == nil {
		return
	}
	if doing := e.doing.Load(); doing != nil {
		err = fmt.Errorf("%s: %w", *doing, err)
	}
	e.end(err)
	runtime.Goexit()
}

// Must returns v. It ends the test e if err is not nil.
func Must[T any](v T, err error) func(e *Experiment) T {
	return func(e *Experiment) T {
		e.Check(err)
		return v
	}
}

// say prints what the test does next. An error of it begins with that.
func (e *Experiment) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	e.doing.Store(&text)
	e.Say("%s", text)
}

// needs ends the test if a program is not installed.
func (e *Experiment) needs(program string) { e.Check(stage.Needs(e.Rep, program)) }

// has reports whether a program is installed, and notes in the report if it is not.
func (e *Experiment) has(program string) bool {
	err := stage.Needs(e.Rep, program)
	if stage.Skips(e.Rep, err) {
		return false
	}
	e.Check(err)
	return true
}

func (e *Experiment) start(t stage.Setup) *stage.Stage {
	return Must(e.Start(e.Ctx, t))(e)
}

func (e *Experiment) measure(s *stage.Stage, loaded stage.Load) *stage.Figures {
	return Must(s.Measure(e.Ctx, loaded))(e)
}

// once starts a setup, measures one load, and stops the setup.
func (e *Experiment) once(t stage.Setup, loaded stage.Load) *stage.Figures {
	s := e.start(t)
	defer s.Stop()
	return e.measure(s, loaded)
}

// beside runs fn beside a load. After the load it cancels the context of fn and waits for its end.
func (e *Experiment) beside(s *stage.Stage, loaded stage.Load, fn func(context.Context)) *stage.Figures {
	ctx, stop := context.WithCancel(e.Ctx)
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		fn(ctx)
	}()
	f, err := s.Measure(e.Ctx, loaded)
	stop()
	<-ended
	return Must(f, err)(e)
}

func (e *Experiment) metric(s *stage.Stage, name string, want ...string) float64 {
	return Must(s.Adbuffer.Metric(name, want...))(e)
}

func (e *Experiment) set(s *rig.SSP, b sspsim.Behaviour) { e.Check(s.Set(b)) }

func (e *Experiment) counters(s *rig.SSP) sspsim.Counters {
	return Must(s.Counters())(e)
}
