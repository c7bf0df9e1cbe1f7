package tests

import (
	"context"
	"errors"
	"testing"

	"adbuffer/internal/testsupport"
	"adbuffer/loadtest/internal/stage"
)

// The first error ends a test, also that of a goroutine beside a load, which it interrupts.
func TestFirstErrorEndsATest(t *testing.T) {
	broken := errors.New("no such luck")
	lasts := func(ctx context.Context, _ *stage.Stage) (*stage.Figures, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for name, test := range map[string]func(*Experiment){
		"of the test": func(e *Experiment) { e.Check(broken) },
		"of a value":  func(e *Experiment) { Must(1, broken)(e) },
		"beside a load": func(e *Experiment) {
			e.beside(new(stage.Stage), lasts, func(context.Context) { e.Check(broken) })
		},
	} {
		cleaned, passed := false, false
		env := &stage.Env{Say: func(string, ...any) {}}
		_, err := perform(t.Context(), env, nil, func(e *Experiment) {
			defer func() { cleaned = true }()
			e.say("round %d", 2)
			e.Check(nil)
			test(e)
			passed = true
		})
		if !errors.Is(err, broken) || err.Error() != "round 2: no such luck" || !cleaned || passed {
			t.Errorf("%s: %v, cleaned %v, passed %v", name, err, cleaned, passed)
		}
	}
}

func TestInterruptedTestHasNoReport(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	_, err := perform(ctx, new(stage.Env), nil, func(*Experiment) { interrupt() })
	testsupport.True(t, errors.Is(err, context.Canceled), "%v", err)
}
