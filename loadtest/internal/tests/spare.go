package tests

import (
	"context"
	"errors"
	"fmt"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/stage"
)

// Two primaries and a spare get requests at this rate. The primaries fail, and the first ejection lasts as
// long at adbuffer and Envoy.
const (
	spareRate    = 200 // requests a second
	spareTimeout = 300 * time.Millisecond
	baseTime     = 5.0 // of the first ejection, in seconds
)

// addSpare adds trials in which all primaries fail. They measure how soon the spare carries the requests,
// and how soon the primaries do again.
func addSpare(e *stage.Env, t *stage.Test) {
	const group = "spare"
	const slice = 500 * time.Millisecond
	plan := func(length time.Duration) load.Plan { return pages(spareRate, 0, length, "/fillbuffer") }
	healthy := steady(5 * time.Millisecond)
	for _, failure := range []struct {
		name   string
		broken sspsim.Behaviour
	}{
		{"respond 500", sspsim.Behaviour{Faults: sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always, Code: 500}}}},
		{"hang", sspsim.Behaviour{Faults: sspsim.Faults{Hang: sspsim.Always, Stall: sspsim.Always}}},
		{"are slow", steady(5 * spareTimeout)},
	} {
		for _, p := range []struct{ name, program string }{{"adbuffer", ""}, {"Envoy, priorities", "envoy"}, {"HAProxy, backup", "haproxy"}} {
			t.Trials = append(t.Trials, stage.Trial{Name: p.name + ", primaries " + failure.name, Cells: []any{failure.name, p.name}, Group: group,
				SSPs:   []*stage.SSP{{Name: "ssp", Endpoints: 3, Spare: true, Behaviour: healthy}},
				Server: stage.Server{Program: p.program, Route: &rig.Route{Name: "spare", Eject: true, Timeout: spareTimeout}, Config: stage.Config{Deadline: spareTimeout.String()}},
				Steps: []stage.Step{
					// A busy machine may have ejected a primary.
					{Name: "calm", Load: until(plan(2*time.Second), 20*time.Second, func(_ load.Summary, got []float64) bool { return got[2] == 0 })},
					// Only the spare can respond in time.
					{Name: "failing", Before: setPrimaries(failure.broken), Load: until(plan(slice), 20*time.Second, func(of load.Summary, _ []float64) bool { return float64(of.Failed) <= 0.01*float64(of.Offered) })},
					{Name: "next", Load: stage.Generate(plan(e.Time(10*time.Second, 3*time.Second)), true)},
					{Name: "repaired", Before: setPrimaries(healthy), Load: until(plan(slice), 30*time.Second, func(of load.Summary, got []float64) bool { return got[2] < 0.2*float64(of.Offered) })},
				}})
		}
		row := "adbuffer, primaries " + failure.name + ":"
		t.Promises = append(t.Promises, stage.Promise{Group: group, Doubtful: true, Text: fmt.Sprintf("if all primaries %s, the spare carries 99 %% within 10 s; they are back within base_time of their repair", failure.name),
			If:    fmt.Sprintf("%[1]sfailing.after <= 10 and %[1]snext.answered / %[1]snext.offered >= 0.99 and %[1]srepaired.after <= %[2]v", row, baseTime),
			Words: fmt.Sprintf("After {%[1]sfailing.after} s; then {%[1]snext.answered} of {%[1]snext.offered}; back after {%[1]srepaired.after} s.", row)})
	}
	t.Tables = append(t.Tables, stage.Table{Title: fmt.Sprintf("%d requests/s with a timeout of %v to two primaries and a spare; then the primaries fail", spareRate, spareTimeout), Group: group, Heads: []string{"the primaries", "proxy"},
		Columns: []stage.Column{{Head: "the spare carries 99 % after, s", Value: "failing.after"}, {Head: "carried, next window", Value: "next.answered"}, {Head: "of", Value: "next.offered"}, {Head: "share", Value: "next.answered / next.offered", As: "%"}, {Head: "primaries back after, s", Value: "repaired.after"}}})
}

// setPrimaries gives both primaries a behaviour.
func setPrimaries(b sspsim.Behaviour) func(context.Context, *stage.Stage) (func() error, error) {
	return func(_ context.Context, s *stage.Stage) (func() error, error) {
		return nil, errors.Join(s.SSPs[0].Set(b), s.SSPs[1].Set(b))
	}
}
