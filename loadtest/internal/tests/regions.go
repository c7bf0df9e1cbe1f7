package tests

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/stage"
)

// The first of two regions dies at regionDies and works again at regionWorks.
const (
	regionRate  = 500 // requests a second
	regionDies  = 2 * time.Second
	regionWorks = 6 * time.Second
	regionEnds  = 18 * time.Second
	never       = 1e9 // the time of an event that did not happen
)

// addRegions adds trials in which the endpoint of priority 0 dies and comes back. They measure how soon
// requests move to the endpoint of priority 1, and how soon they return.
func addRegions(t *stage.Test) {
	const group = "regions"
	healthy := steady(5 * time.Millisecond)
	for _, death := range []struct {
		name   string
		faults sspsim.Faults
		cut    bool // its connections are reset too
	}{
		{"refuses, connections reset", sspsim.Faults{Refuse: true}, true},
		{"silent", sspsim.Faults{BlackHole: true, Stall: sspsim.Always}, false},
	} {
		dead := healthy
		dead.Faults = death.faults
		moved := stage.Values{}
		t.Trials = append(t.Trials, stage.Trial{Name: death.name, Group: group,
			SSPs:   []*stage.SSP{{Name: "ssp", Endpoints: 2, Spare: true, Behaviour: healthy, More: []string{"breaker: {enabled: false}"}}},
			Server: stage.Server{Config: stage.Config{Deadline: "300ms"}},
			Steps:  []stage.Step{{Before: regionDeath(dead, healthy, death.cut, moved), Load: stage.Generate(pages(regionRate, 0, regionEnds, "/fillbuffer"), true)}},
			Derive: func(s *stage.Sample) { maps.Copy(s.Values, moved) }})
	}
	t.Tables = append(t.Tables, stage.Table{Title: fmt.Sprintf("%d requests/s; the endpoint of priority 0 is dead for %v", regionRate, regionWorks-regionDies), Group: group, Heads: []string{"priority 0"},
		Columns: []stage.Column{{Head: "taken over after, s", Value: "taken"}, {Head: "failed", Value: "failed"}, {Head: "of", Value: "offered"}, {Head: "given back after, s", Value: "given"}}})
	t.Promises = append(t.Promises, stage.Promise{Group: group, Each: true, Text: "priority 1 takes over within 1 s, and gives back", If: "taken <= 1 and given < 12", Doubtful: true,
		Words: "Taken over after {taken} s; {failed} of {offered} requests failed; given back after {given} s."})
}

// regionDeath makes the first endpoint die and come back during the load. It measures after how many
// seconds the requests have moved.
func regionDeath(dead, healthy sspsim.Behaviour, cut bool, moved stage.Values) func(context.Context, *stage.Stage) (func() error, error) {
	return stage.Beside(func(ctx context.Context, s *stage.Stage) error {
		began := time.Now()
		stage.Sleep(ctx, regionDies)
		err := s.SSPs[0].Set(dead)
		if cut {
			err = errors.Join(err, s.SSPs[0].CloseConnections())
		}
		if err == nil {
			moved["taken"], err = untilLoaded(ctx, s.SSPs[1], 3*time.Second)
		}
		stage.Sleep(ctx, time.Until(began.Add(regionWorks)))
		if err = errors.Join(err, s.SSPs[0].Set(healthy)); err == nil {
			moved["given"], err = untilLoaded(ctx, s.SSPs[0], time.Until(began.Add(regionEnds-time.Second)))
		}
		return err
	})
}

// untilLoaded returns after how many seconds an SSP receives four fifths of the requests. It returns
// never if that does not happen within limit.
func untilLoaded(ctx context.Context, s *rig.SSP, limit time.Duration) (float64, error) {
	began := time.Now()
	before, err := s.Counters()
	for last := began; err == nil && ctx.Err() == nil && time.Since(began) < limit; {
		stage.Sleep(ctx, 100*time.Millisecond)
		var now sspsim.Counters
		now, err = s.Counters()
		at := time.Now()
		if float64(now.Requests-before.Requests) >= 0.8*regionRate*at.Sub(last).Seconds() {
			return at.Sub(began).Seconds(), err
		}
		before, last = now, at
	}
	return never, err
}

// addMirror adds a trial that compares p99 with a black-holed mirror and without a mirror. Short runs
// of both take turns, so that other work of the machine slows both.
func addMirror(e *stage.Env, t *stage.Test) {
	const (
		group   = "mirror"
		rate    = 500
		rounds  = 8
		latency = 30 * time.Millisecond
		// ratio is the name of a round's ratio. It names both steps, so that doubts about either count.
		ratio = "mirrored.p99/plain.p99"
	)
	drive := func(path string) stage.Driver {
		return stage.Generate(pages(rate, 500*time.Millisecond, e.Time(5*time.Second, 2*time.Second), path), false)
	}
	t.Trials = append(t.Trials, stage.Trial{Name: "black-holed mirror", Group: group, Repeat: rounds,
		SSPs: []*stage.SSP{{Name: "main", Behaviour: steady(latency)}, {Name: "hole", Behaviour: sspsim.Behaviour{Faults: sspsim.Faults{BlackHole: true}}}},
		Server: stage.Server{Config: stage.Config{Deadline: "300ms", Routes: []string{
			"{name: plain, match: {path: /plain}, ssps: [main]}",
			"{name: mirrored, match: {path: /mirrored}, ssps: [main], mirror: {ssp: hole, share: 1}}",
		}}},
		Steps: []stage.Step{{Name: "plain", Load: drive("/plain")}, {Name: "mirrored", Load: drive("/mirrored")}},
		Derive: func(s *stage.Sample) {
			s.Values[ratio] = s.Values["mirrored.p99"] / s.Values["plain.p99"]
			s.Values["failed"] = s.Values["mirrored.failed"] + s.Values["plain.failed"]
		}})
	t.Tables = append(t.Tables, stage.Table{Title: fmt.Sprintf("%d requests/s to an SSP of %v, each copied to a black hole, or none; medians of %d rounds in turn", rate, latency, rounds), Group: group, Heads: []string{"mirror"},
		Columns: []stage.Column{{Head: "p99 ms without", Value: "plain.p99"}, {Head: "with", Value: "mirrored.p99"}, {Head: "ratio", Value: ratio}, {Head: "failed", Value: "failed"}}})
	t.Promises = append(t.Promises, stage.Promise{Group: group, Each: true, Text: "the p99 of the main traffic stays within 3 %", If: ratio + " <= 1.03 and mirrored.failed = 0 and plain.failed = 0", Doubtful: true,
		Words: "The median of the rounds' ratios is {" + ratio + "}; {failed} requests failed."})
}
