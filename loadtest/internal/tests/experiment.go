package tests

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/stage"
)

// experiment is a load test that runs. It ends at its first error, as a test does with testing.T: check
// ends the calling goroutine, and cancels ctx for all others.
type experiment struct {
	*stage.Env
	ctx   context.Context
	end   context.CancelCauseFunc
	rep   *results.Report
	doing atomic.Pointer[string] // the last text of say
}

// command returns the command of a load test.
func command(name, short, question, long string, test func(*experiment)) Command {
	return Command{Name: name, Short: short, Long: long,
		Run: func(ctx context.Context, env *stage.Env) (*results.Report, error) {
			return perform(ctx, env, env.Report(name, short, question), test)
		}}
}

// perform performs a load test to its end or to its first error.
func perform(ctx context.Context, env *stage.Env, rep *results.Report, test func(*experiment)) (*results.Report, error) {
	e := &experiment{Env: env, rep: rep}
	e.ctx, e.end = context.WithCancelCause(ctx)
	defer e.end(nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		test(e)
	}()
	<-ended
	if err := context.Cause(e.ctx); err != nil {
		return nil, err
	}
	return rep, nil
}

// check ends the test if err is not nil.
func (e *experiment) check(err error) {
	if err == nil {
		return
	}
	if doing := e.doing.Load(); doing != nil {
		err = fmt.Errorf("%s: %w", *doing, err)
	}
	e.end(err)
	runtime.Goexit()
}

// must returns v. It ends the test e if err is not nil.
func must[T any](v T, err error) func(e *experiment) T {
	return func(e *experiment) T {
		e.check(err)
		return v
	}
}

// say prints what the test does next. An error of it begins with that.
func (e *experiment) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	e.doing.Store(&text)
	e.Say("%s", text)
}

// needs ends the test if a program is not installed.
func (e *experiment) needs(program string) { e.check(stage.Needs(e.rep, program)) }

// has reports whether a program is installed, and notes in the report if it is not.
func (e *experiment) has(program string) bool {
	err := stage.Needs(e.rep, program)
	if stage.Skips(e.rep, err) {
		return false
	}
	e.check(err)
	return true
}

func (e *experiment) start(t stage.Setup) *stage.Stage {
	return must(e.Start(e.ctx, t))(e)
}

func (e *experiment) measure(s *stage.Stage, loaded stage.Load) *stage.Figures {
	return must(s.Measure(e.ctx, loaded))(e)
}

// once starts a setup, measures one load, and stops the setup.
func (e *experiment) once(t stage.Setup, loaded stage.Load) *stage.Figures {
	s := e.start(t)
	defer s.Stop()
	return e.measure(s, loaded)
}

// beside runs fn beside a load. After the load it cancels the context of fn and waits for its end.
func (e *experiment) beside(s *stage.Stage, loaded stage.Load, fn func(context.Context)) *stage.Figures {
	ctx, stop := context.WithCancel(e.ctx)
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		fn(ctx)
	}()
	f, err := s.Measure(e.ctx, loaded)
	stop()
	<-ended
	return must(f, err)(e)
}

func (e *experiment) metric(s *stage.Stage, name string, want ...string) float64 {
	return must(s.Adbuffer.Metric(name, want...))(e)
}

func (e *experiment) set(s *rig.SSP, b sspsim.Behaviour) { e.check(s.Set(b)) }

func (e *experiment) counters(s *rig.SSP) sspsim.Counters {
	return must(s.Counters())(e)
}
