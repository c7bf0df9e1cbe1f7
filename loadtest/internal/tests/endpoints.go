package tests

import (
	"context"
	"fmt"
	"slices"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

// never is the time in seconds of an event that did not happen.
const never = 1e9

// endpoints makes one of an SSP's two endpoints respond 500, and repairs it later. Then a region dies,
// all primaries fail beside a spare, and a mirror is a black hole.
func endpoints(e *rig.Rig) {
	failOne(e)
	regions(e)
	spares(e)
	mirror(e)
}

// endpointRate is the rate of the tests of failing endpoints, in requests a second.
const endpointRate = 200

func endpointPlan(length time.Duration) load.Plan {
	return pages(endpointRate, 0, length, "/fillbuffer")
}

// endpointWindow is a load in whose figures some requests may fail.
func endpointWindow(e *rig.Rig) rig.Load {
	return rig.Generate(endpointPlan(e.Time(10*time.Second, 3*time.Second)), true)
}

// responds500 is the behaviour of an endpoint that responds 500 to everything.
var responds500 = sspsim.Behaviour{Faults: sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always, Code: 500}}}

// failOne makes one of two endpoints fail, at adbuffer and at other proxies. Half of the requests fail where
// nothing is ejected.
func failOne(e *rig.Rig) {
	t := e.Rep.Table(fmt.Sprintf("%d requests/s to two endpoints; then one responds 500 to everything", endpointRate),
		"proxy", "failed, first window", "of", "failed, next window", "of", "share", "back after, s")
	for _, p := range []struct{ name, program, more string }{
		{name: "adbuffer"}, {name: "adbuffer, ejection off", more: "ejection: {enabled: false}"},
		{name: "Envoy, outlier detection", program: "envoy"}, {name: "HAProxy, observe layer7", program: "haproxy"},
	} {
		if !e.Has(p.program) {
			continue
		}
		e.Next("endpoints: %s", p.name)
		healthy := steady(5 * time.Millisecond)
		// A breaker would shed requests that the comparison must count as failed.
		ssp := &rig.SSP{Name: "ssp", Endpoints: 2, Behaviour: healthy, More: []string{"breaker: {enabled: false}", p.more}}
		s := e.Start(rig.Setup{SSPs: []*rig.SSP{ssp}, Program: p.program,
			Route: &rig.Route{Name: "pair", Eject: true}, Config: rig.Config{Deadline: "2s"}})
		s.Measure(rig.Generate(endpointPlan(time.Second), false))
		s.SSPs[1].Set(responds500)
		first, next := s.Measure(endpointWindow(e)), s.Measure(endpointWindow(e))
		s.SSPs[1].Set(healthy)
		back := until(s, time.Second, 30*time.Second,
			func(of *rig.Figures, got []float64) bool { return got[1] > 0.4*float64(of.Offered) })
		s.Stop()
		t.Add(rounds{first, next}.doubts(), p.name, first.Failed, first.Offered, next.Failed, next.Offered,
			results.Percent(share(next.Failed, next.Offered)), back)
		if p.name == "adbuffer" {
			e.Rep.Promise("an endpoint that fails costs less than 1 % of the requests after one window, and is back within 10 s",
				share(next.Failed, next.Offered) < 0.01 && back <= 10, nil,
				"%v of %v requests failed in the window after the first; the endpoint was back %v s after it was repaired.",
				next.Failed, next.Offered, back)
		}
	}
}

// until repeats a load until its results are good. It returns after how many seconds the last one began, or
// never if that did not happen within limit. got is how many requests each endpoint received.
func until(s *rig.Stage, length, limit time.Duration, good func(of *rig.Figures, got []float64) bool) float64 {
	last := make([]uint64, len(s.SSPs))
	received := func() (got []float64) {
		for i, ssp := range s.SSPs {
			n := ssp.Counters().Requests
			got, last[i] = append(got, float64(n-last[i])), n
		}
		return got
	}
	received()
	for began := time.Now(); time.Since(began) < limit; {
		at := time.Since(began)
		if of := s.Measure(rig.Generate(endpointPlan(length), true)); good(of, received()) {
			return at.Seconds()
		}
	}
	return never
}

// The first of two regions dies at regionDies and works again at regionWorks.
const (
	regionRate  = 500 // requests a second
	regionDies  = 2 * time.Second
	regionWorks = 6 * time.Second
	regionEnds  = 18 * time.Second
)

// regions makes the endpoint of priority 0 die and come back. It measures how soon requests move to the
// endpoint of priority 1, and how soon they return.
func regions(e *rig.Rig) {
	healthy := steady(5 * time.Millisecond)
	t := e.Rep.Table(fmt.Sprintf("%d requests/s; the endpoint of priority 0 is dead for %v", regionRate,
		regionWorks-regionDies),
		"priority 0", "taken over after, s", "failed", "of", "given back after, s")
	for _, death := range []struct {
		name   string
		faults sspsim.Faults
		cut    bool // its connections are reset too
	}{
		{"refuses, connections reset", sspsim.Faults{Refuse: true}, true},
		{"silent", sspsim.Faults{BlackHole: true, Stall: sspsim.Always}, false},
	} {
		e.Next("endpoints: %s", death.name)
		s := e.Start(rig.Setup{Config: rig.Config{Deadline: "300ms"},
			SSPs: []*rig.SSP{{Name: "ssp", Endpoints: 2, Spare: true, Behaviour: healthy,
				More: []string{"breaker: {enabled: false}"}}}})
		dead := healthy
		dead.Faults = death.faults
		var taken, given float64
		f := s.Beside(rig.Generate(pages(regionRate, 0, regionEnds, "/fillbuffer"), true), func(ctx context.Context) {
			began := time.Now()
			rig.Sleep(ctx, regionDies)
			s.SSPs[0].Set(dead)
			if death.cut {
				s.SSPs[0].CloseConnections()
			}
			taken = untilLoaded(ctx, s.SSPs[1], 3*time.Second)
			rig.Sleep(ctx, time.Until(began.Add(regionWorks)))
			s.SSPs[0].Set(healthy)
			given = untilLoaded(ctx, s.SSPs[0], time.Until(began.Add(regionEnds-time.Second)))
		})
		s.Stop()
		t.Add(f.Doubts, death.name, taken, f.Failed, f.Offered, given)
		e.Rep.Promise(death.name+": priority 1 takes over within 1 s, and gives back", taken <= 1 && given < 12, f.Doubts,
			"Taken over after %v s; %v of %v requests failed; given back after %v s.", taken, f.Failed, f.Offered, given)
	}
}

// untilLoaded returns after how many seconds an SSP receives four fifths of the requests. It returns
// never if that does not happen within limit.
func untilLoaded(ctx context.Context, s *rig.SimulatedSSP, limit time.Duration) float64 {
	began := time.Now()
	before := s.Counters().Requests
	for last := began; ctx.Err() == nil && time.Since(began) < limit; {
		rig.Sleep(ctx, 100*time.Millisecond)
		now, at := s.Counters().Requests, time.Now()
		if float64(now-before) >= 0.8*regionRate*at.Sub(last).Seconds() {
			return at.Sub(began).Seconds()
		}
		before, last = now, at
	}
	return never
}

const (
	spareTimeout = 300 * time.Millisecond
	baseTime     = 5.0 // of the first ejection at adbuffer and Envoy, in seconds
)

// takeover has how soon a spare carried the requests of failing primaries.
type takeover struct {
	failing  float64      // after how many seconds the spare carried 99 %
	next     *rig.Figures // what it carried then
	repaired float64      // after how many seconds the repaired primaries were back
}

// spares makes both primaries fail. It measures how soon the spare carries the requests, and how soon the
// primaries do again.
func spares(e *rig.Rig) {
	t := e.Rep.Table(fmt.Sprintf("%d requests/s with a timeout of %v to two primaries and a spare; then the primaries fail",
		endpointRate, spareTimeout),
		"the primaries", "proxy", "the spare carries 99 % after, s", "carried, next window", "of", "share",
		"primaries back after, s")
	for _, failure := range []struct {
		name   string
		broken sspsim.Behaviour
	}{
		{"respond 500", responds500},
		{"hang", sspsim.Behaviour{Faults: sspsim.Faults{Hang: sspsim.Always, Stall: sspsim.Always}}},
		{"are slow", steady(5 * spareTimeout)},
	} {
		for _, p := range []struct{ name, program string }{{"adbuffer", ""}, {"Envoy, priorities", "envoy"},
			{"HAProxy, backup", "haproxy"}} {
			if !e.Has(p.program) {
				continue
			}
			e.Next("endpoints: %s, primaries %s", p.name, failure.name)
			out := failPrimaries(e, p.program, failure.broken)
			t.Add(out.next.Doubts, failure.name, p.name, out.failing, out.next.Answered, out.next.Offered,
				results.Percent(share(out.next.Answered, out.next.Offered)), out.repaired)
			if p.program == "" {
				e.Rep.Promise(fmt.Sprintf("if all primaries %s, the spare takes over within 10 s, and they are back within base_time "+
					"of their repair", failure.name), out.failing <= 10 && out.repaired <= baseTime, nil,
					"After %v s; back after %v s.", out.failing, out.repaired)
				e.Rep.Promise(fmt.Sprintf("if all primaries %s, the spare then carries 99 %%", failure.name),
					share(out.next.Answered, out.next.Offered) >= 0.99, out.next.Doubts, "%v of %v.", out.next.Answered, out.next.Offered)
			}
		}
	}
}

func failPrimaries(e *rig.Rig, program string, broken sspsim.Behaviour) (out takeover) {
	const slice = 500 * time.Millisecond
	healthy := steady(5 * time.Millisecond)
	s := e.Start(rig.Setup{SSPs: []*rig.SSP{{Name: "ssp", Endpoints: 3, Spare: true, Behaviour: healthy}},
		Program: program,
		Route:   &rig.Route{Name: "spare", Eject: true, Timeout: spareTimeout},
		Config:  rig.Config{Deadline: spareTimeout.String()}})
	defer s.Stop()
	set := func(b sspsim.Behaviour) {
		s.SSPs[0].Set(b)
		s.SSPs[1].Set(b)
	}
	// A busy machine may have ejected a primary.
	until(s, 2*time.Second, 20*time.Second,
		func(_ *rig.Figures, got []float64) bool { return got[2] == 0 })
	set(broken)
	// Only the spare can respond in time.
	out.failing = until(s, slice, 20*time.Second,
		func(of *rig.Figures, _ []float64) bool { return float64(of.Failed) <= 0.01*float64(of.Offered) })
	out.next = s.Measure(endpointWindow(e))
	set(healthy)
	out.repaired = until(s, slice, 30*time.Second,
		func(of *rig.Figures, got []float64) bool { return got[2] < 0.2*float64(of.Offered) })
	return out
}

// mirror compares p99 with a black-holed mirror and without a mirror. Short runs of both take turns, so
// that other work of the machine slows both.
func mirror(e *rig.Rig) {
	const (
		rate    = 500
		times   = 8
		latency = 30 * time.Millisecond
	)
	s := e.Start(rig.Setup{
		SSPs: []*rig.SSP{{Name: "main", Behaviour: steady(latency)},
			{Name: "hole", Behaviour: sspsim.Behaviour{Faults: sspsim.Faults{BlackHole: true}}}},
		Config: rig.Config{Deadline: "300ms", Routes: []string{
			"{name: plain, match: {path: /plain}, ssps: [main]}",
			"{name: mirrored, match: {path: /mirrored}, ssps: [main], mirror: {ssp: hole, share: 1}}",
		}}})
	defer s.Stop()
	loaded := func(path string) func() *rig.Figures {
		plan := pages(rate, 500*time.Millisecond, e.Time(5*time.Second, 2*time.Second), path)
		return func() *rig.Figures { return s.Measure(rig.Generate(plan, false)) }
	}
	all := inTurn(e, times, "endpoints: black-holed mirror", loaded("/plain"), loaded("/mirrored"))
	t := e.Rep.Table(fmt.Sprintf("%d requests/s to an SSP of %v, each copied to a black hole, or none; medians of %d "+
		"rounds in turn", rate, latency, times),
		"mirror", "p99 ms without", "with", "ratio", "failed")
	broken := slices.DeleteFunc(slices.Concat(all.calm, all.disturbed), func(f *rig.Figures) bool { return f.Failed == 0 })
	ratio, lost := rig.Median(all.disturbed.ratios(all.calm, p99)), broken.counts().Failed
	t.Add(all.doubts(), "black-holed mirror", all.calm.median(p99), all.disturbed.median(p99), ratio, lost)
	e.Rep.Promise("black-holed mirror: the p99 of the main traffic stays within 3 %", ratio <= 1.03, all.doubts(),
		"The median of the rounds' ratios is %v.", ratio)
	doubts := broken.doubts()
	if slices.ContainsFunc(broken, func(f *rig.Figures) bool { return len(f.Doubts) == 0 }) {
		doubts = nil
	}
	e.Rep.Promise("black-holed mirror: no request of the main traffic fails", lost == 0, doubts, "%v requests failed.", lost)
}
