package tests

import (
	"context"
	"errors"
	"fmt"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/engine"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
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
func addSpare(e *engine.Env, t *engine.Test) {
	const group = "spare"
	window := e.Time(10*time.Second, 3*time.Second)
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
			t.Trials = append(t.Trials, engine.Trial{Name: p.name + ", primaries " + failure.name, Cells: []any{failure.name, p.name}, Group: group,
				SSPs:   []*engine.SSP{{Name: "ssp", Endpoints: 3, Spare: true, Behaviour: healthy}},
				Server: engine.Server{Program: p.program, Route: &rig.Route{Name: "spare", Eject: true, Timeout: spareTimeout}, Config: engine.Config{Deadline: spareTimeout.String()}},
				Steps:  []engine.Step{{Load: failAll(failure.broken, healthy, window)}}})
		}
		row := "adbuffer, primaries " + failure.name + ":"
		t.Promises = append(t.Promises, engine.Promise{Group: group, Text: fmt.Sprintf("if all primaries %s, the spare carries 99 %% within 10 s; they are back within %.0f s of their repair", failure.name, baseTime),
			If:    fmt.Sprintf("%[1]staken <= 10 and %[1]scarried / %[1]soffered >= 0.99 and %[1]sback <= %[2]v", row, baseTime),
			Words: fmt.Sprintf("After {%[1]staken} s; then {%[1]scarried} of {%[1]soffered}; back after {%[1]sback} s.", row)})
	}
	t.Tables = append(t.Tables, engine.Table{Title: fmt.Sprintf("%d requests/s with a timeout of %v to two primaries and a spare; then the primaries fail", spareRate, spareTimeout), Group: group, Heads: []string{"the primaries", "proxy"},
		Columns: []engine.Column{{Head: "the spare carries 99 % after, s", Value: "taken"}, {Head: "carried, next window", Value: "carried"}, {Head: "of", Value: "offered"}, {Head: "share", Value: "carried / offered", As: "%"}, {Head: "primaries back after, s", Value: "back"}}})
}

// failAll makes the two primaries fail until the spare has carried the requests of a window, and repairs
// them. Only the spare can respond in time meanwhile. The primaries are back when they get four fifths.
func failAll(broken, healthy sspsim.Behaviour, window time.Duration) engine.Driver {
	return func(ctx context.Context, s *engine.Stage) (*engine.Sample, error) {
		var of load.Summary // of the last requests
		generate := func(length time.Duration) error {
			r, err := s.Generate(ctx, pages(spareRate, 0, length, "/fillbuffer"), nil)
			if err == nil {
				of = r.Whole
			}
			return err
		}
		// until returns after how many seconds a part of the requests begins that is good.
		until := func(limit time.Duration, good func(spared float64) bool) (float64, error) {
			for began := time.Now(); time.Since(began) < limit; {
				at := time.Since(began)
				before, err := s.SSPs[2].Counters()
				if err = errors.Join(err, generate(500*time.Millisecond)); err != nil {
					return 0, err
				}
				after, err := s.SSPs[2].Counters()
				if err != nil || good(float64(after.Requests-before.Requests)) {
					return at.Seconds(), err
				}
			}
			return never, nil
		}
		set := func(b sspsim.Behaviour) error { return errors.Join(s.SSPs[0].Set(b), s.SSPs[1].Set(b)) }
		if err := errors.Join(generate(2*time.Second), set(broken)); err != nil {
			return nil, err
		}
		taken, err := until(20*time.Second, func(float64) bool { return float64(of.Failed) <= 0.01*float64(of.Offered) })
		if err = errors.Join(err, generate(window)); err != nil {
			return nil, err
		}
		v := engine.Values{"taken": taken, "offered": float64(of.Offered), "carried": float64(of.Answered)}
		if err := set(healthy); err != nil {
			return nil, err
		}
		v["back"], err = until(30*time.Second, func(spared float64) bool { return spared < 0.2*float64(of.Offered) })
		return &engine.Sample{Values: v}, err
	}
}
