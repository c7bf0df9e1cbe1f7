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
	"adbuffer/loadtest/internal/stage"
)

// never is the time in seconds of an event that did not happen.
const never = 1e9

// endpoints makes one of an SSP's two endpoints respond 500, and repairs it later. Then a region dies,
// all primaries fail beside a spare, and a mirror is a black hole.
func endpoints(e *experiment) {
	e.report("endpoints", "One of two endpoints responds 500",
		"How many requests does an endpoint cost that fails, and how soon is it back after it was repaired?")
	for _, part := range []func(*experiment){failOne, regions, spares, mirror} {
		part(e)
	}
}

// ejection has what a failing endpoint cost.
type ejection struct {
	first, next *stage.Figures // in the first window after the failure, and in the next one
	back        float64        // after how many seconds the repaired endpoint was back
}

// failOne makes one of two endpoints fail, at adbuffer and at other proxies.
func failOne(e *experiment) {
	t := e.rep.Table(fmt.Sprintf("%d requests/s to two endpoints; then one responds 500 to everything", pairRate),
		"proxy", "failed, first window", "of", "failed, next window", "of", "share", "back after, s")
	for _, p := range []struct{ name, program, more string }{
		{name: "adbuffer"}, {name: "adbuffer, ejection off", more: "ejection: {enabled: false}"},
		{name: "Envoy, outlier detection", program: "envoy"}, {name: "HAProxy, observe layer7", program: "haproxy"},
	} {
		if !e.has(p.program) {
			continue
		}
		e.say("endpoints: %s", p.name)
		// A breaker would shed requests that the comparison must count as failed.
		ssp := &stage.SSP{Name: "ssp", Endpoints: 2, Behaviour: steady(5 * time.Millisecond),
			More: []string{"breaker: {enabled: false}"}}
		if p.more != "" {
			ssp.More = append(ssp.More, p.more)
		}
		out := eject(e, stage.Setup{SSPs: []*stage.SSP{ssp}, Program: p.program,
			Route: &rig.Route{Name: "pair", Eject: true}, Config: stage.Config{Deadline: "2s"}})
		t.Add(doubtsOf(out.first, out.next), p.name, out.first.Failed, out.first.Offered, out.next.Failed,
			out.next.Offered,
			results.Percent(share(out.next.Failed, out.next.Offered)), out.back)
		if p.name == "adbuffer" {
			judgeEjection(e.rep, out)
		}
	}
}

// pairRate is a number of requests a second. Half of them fail where nothing is ejected.
const pairRate = 200

func eject(e *experiment, setup stage.Setup) (out ejection) {
	s := e.start(setup)
	defer s.Stop()
	plan := func(length time.Duration) load.Plan { return pages(pairRate, 0, length, "/fillbuffer") }
	window := stage.Generate(plan(e.Time(10*time.Second, 3*time.Second)), true)
	e.measure(s, stage.Generate(plan(time.Second), false))
	healthy := setup.SSPs[0].Behaviour
	broken := healthy
	broken.Faults.Status = sspsim.Status{Chance: sspsim.Always, Code: 500}
	e.set(s.SSPs[1], broken)
	out.first = e.measure(s, window)
	out.next = e.measure(s, window)
	e.set(s.SSPs[1], healthy)
	out.back = until(e, s, plan(time.Second), 30*time.Second,
		func(of load.Summary, got []float64) bool { return got[1] > 0.4*float64(of.Offered) })
	return out
}

func judgeEjection(r *results.Report, out ejection) {
	r.Promise("an endpoint that fails costs less than 1 % of the requests after one window, and is back within 10 s",
		share(out.next.Failed, out.next.Offered) < 0.01 && out.back <= 10, nil,
		"%v of %v requests failed in the window after the first; the endpoint was back %v s after it was repaired.",
		out.next.Failed, out.next.Offered, out.back)
}

// until repeats a plan until its results are good. It returns after how many seconds the last one began, or
// never if that did not happen within limit. got is how many requests each endpoint received.
func until(e *experiment, s *stage.Stage, plan load.Plan, limit time.Duration,
	good func(of load.Summary, got []float64) bool) float64 {
	last := make([]uint64, len(s.SSPs))
	received := func() (got []float64) {
		for i, ssp := range s.SSPs {
			n := e.counters(ssp).Requests
			got, last[i] = append(got, float64(n-last[i])), n
		}
		return got
	}
	received()
	for began := time.Now(); time.Since(began) < limit; {
		at := time.Since(began)
		if of := e.generate(s, plan); good(of, received()) {
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
func regions(e *experiment) {
	healthy := steady(5 * time.Millisecond)
	t := e.rep.Table(fmt.Sprintf("%d requests/s; the endpoint of priority 0 is dead for %v", regionRate,
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
		e.say("endpoints: %s", death.name)
		s := e.start(stage.Setup{Config: stage.Config{Deadline: "300ms"},
			SSPs: []*stage.SSP{{Name: "ssp", Endpoints: 2, Spare: true, Behaviour: healthy,
				More: []string{"breaker: {enabled: false}"}}}})
		dead := healthy
		dead.Faults = death.faults
		var taken, given float64
		f := e.beside(s, stage.Generate(pages(regionRate, 0, regionEnds, "/fillbuffer"), true),
			func(ctx context.Context) { taken, given = regionDeath(ctx, e, s, dead, healthy, death.cut) })
		s.Stop()
		t.Add(f.Doubts, death.name, taken, f.Failed, f.Offered, given)
		judgeRegion(e.rep, death.name, taken, given, f)
	}
}

// regionDeath makes the first endpoint die and come back during the load. It returns after how many
// seconds the requests have moved to the second one and back.
func regionDeath(ctx context.Context, e *experiment, s *stage.Stage, dead, healthy sspsim.Behaviour, cut bool) (taken, given float64) {
	began := time.Now()
	stage.Sleep(ctx, regionDies)
	e.set(s.SSPs[0], dead)
	if cut {
		e.check(s.SSPs[0].CloseConnections())
	}
	taken = untilLoaded(ctx, e, s.SSPs[1], 3*time.Second)
	stage.Sleep(ctx, time.Until(began.Add(regionWorks)))
	e.set(s.SSPs[0], healthy)
	return taken, untilLoaded(ctx, e, s.SSPs[0], time.Until(began.Add(regionEnds-time.Second)))
}

// untilLoaded returns after how many seconds an SSP receives four fifths of the requests. It returns
// never if that does not happen within limit.
func untilLoaded(ctx context.Context, e *experiment, s *rig.SSP, limit time.Duration) float64 {
	began := time.Now()
	before := e.counters(s).Requests
	for last := began; ctx.Err() == nil && time.Since(began) < limit; {
		stage.Sleep(ctx, 100*time.Millisecond)
		now, at := e.counters(s).Requests, time.Now()
		if float64(now-before) >= 0.8*regionRate*at.Sub(last).Seconds() {
			return at.Sub(began).Seconds()
		}
		before, last = now, at
	}
	return never
}

func judgeRegion(r *results.Report, name string, taken, given float64, f *stage.Figures) {
	r.Promise(name+": priority 1 takes over within 1 s, and gives back", taken <= 1 && given < 12, f.Doubts,
		"Taken over after %v s; %v of %v requests failed; given back after %v s.", taken, f.Failed, f.Offered, given)
}

// Two primaries and a spare get requests at this rate. The primaries fail, and the first ejection lasts as
// long at adbuffer and Envoy.
const (
	spareRate    = 200 // requests a second
	spareTimeout = 300 * time.Millisecond
	baseTime     = 5.0 // of the first ejection, in seconds
)

// takeover has how soon a spare carried the requests of failing primaries.
type takeover struct {
	failing  float64        // after how many seconds the spare carried 99 %
	next     *stage.Figures // what it carried then
	repaired float64        // after how many seconds the repaired primaries were back
}

// spares makes all primaries fail. It measures how soon the spare carries the requests, and how soon the
// primaries do again.
func spares(e *experiment) {
	t := e.rep.Table(fmt.Sprintf("%d requests/s with a timeout of %v to two primaries and a spare; then the primaries fail",
		spareRate, spareTimeout),
		"the primaries", "proxy", "the spare carries 99 % after, s", "carried, next window", "of", "share",
		"primaries back after, s")
	for _, failure := range []struct {
		name   string
		broken sspsim.Behaviour
	}{
		{"respond 500", sspsim.Behaviour{Faults: sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always,
			Code: 500}}}},
		{"hang", sspsim.Behaviour{Faults: sspsim.Faults{Hang: sspsim.Always, Stall: sspsim.Always}}},
		{"are slow", steady(5 * spareTimeout)},
	} {
		for _, p := range []struct{ name, program string }{{"adbuffer", ""}, {"Envoy, priorities", "envoy"},
			{"HAProxy, backup", "haproxy"}} {
			if !e.has(p.program) {
				continue
			}
			e.say("endpoints: %s, primaries %s", p.name, failure.name)
			out := failPrimaries(e, p.program, failure.broken)
			t.Add(out.next.Doubts, failure.name, p.name, out.failing, out.next.Answered, out.next.Offered,
				results.Percent(share(out.next.Answered, out.next.Offered)), out.repaired)
			if p.program == "" {
				judgeSpare(e.rep, failure.name, out)
			}
		}
	}
}

func failPrimaries(e *experiment, program string, broken sspsim.Behaviour) (out takeover) {
	const slice = 500 * time.Millisecond
	healthy := steady(5 * time.Millisecond)
	s := e.start(stage.Setup{SSPs: []*stage.SSP{{Name: "ssp", Endpoints: 3, Spare: true, Behaviour: healthy}},
		Program: program,
		Route:   &rig.Route{Name: "spare", Eject: true, Timeout: spareTimeout},
		Config:  stage.Config{Deadline: spareTimeout.String()}})
	defer s.Stop()
	plan := func(length time.Duration) load.Plan { return pages(spareRate, 0, length, "/fillbuffer") }
	set := func(b sspsim.Behaviour) {
		e.set(s.SSPs[0], b)
		e.set(s.SSPs[1], b)
	}
	// A busy machine may have ejected a primary.
	until(e, s, plan(2*time.Second), 20*time.Second,
		func(_ load.Summary, got []float64) bool { return got[2] == 0 })
	set(broken)
	// Only the spare can respond in time.
	out.failing = until(e, s, plan(slice), 20*time.Second,
		func(of load.Summary, _ []float64) bool { return float64(of.Failed) <= 0.01*float64(of.Offered) })
	out.next = e.measure(s, stage.Generate(plan(e.Time(10*time.Second, 3*time.Second)), true))
	set(healthy)
	out.repaired = until(e, s, plan(slice), 30*time.Second,
		func(of load.Summary, got []float64) bool { return got[2] < 0.2*float64(of.Offered) })
	return out
}

// judgeSpare ignores doubts about the window unless only its share broke the promise.
func judgeSpare(r *results.Report, failure string, out takeover) {
	carried := share(out.next.Answered, out.next.Offered) >= 0.99
	soon := out.failing <= 10 && out.repaired <= baseTime
	var doubts []string
	if soon {
		doubts = out.next.Doubts
	}
	r.Promise(fmt.Sprintf("if all primaries %s, the spare carries 99 %% within 10 s; they are back within base_time "+
		"of their repair", failure), carried && soon, doubts,
		"After %v s; then %v of %v; back after %v s.", out.failing, out.next.Answered, out.next.Offered, out.repaired)
}

// mirror compares p99 with a black-holed mirror and without a mirror. Short runs of both take turns, so
// that other work of the machine slows both.
func mirror(e *experiment) {
	const (
		rate    = 500
		rounds  = 8
		latency = 30 * time.Millisecond
	)
	s := e.start(stage.Setup{
		SSPs: []*stage.SSP{{Name: "main", Behaviour: steady(latency)},
			{Name: "hole", Behaviour: sspsim.Behaviour{Faults: sspsim.Faults{BlackHole: true}}}},
		Config: stage.Config{Deadline: "300ms", Routes: []string{
			"{name: plain, match: {path: /plain}, ssps: [main]}",
			"{name: mirrored, match: {path: /mirrored}, ssps: [main], mirror: {ssp: hole, share: 1}}",
		}}})
	defer s.Stop()
	loaded := func(path string) stage.Load {
		return stage.Generate(pages(rate, 500*time.Millisecond, e.Time(5*time.Second, 2*time.Second), path), false)
	}
	var all turns
	for n := range rounds {
		e.say("endpoints: black-holed mirror, round %d of %d", n+1, rounds)
		all.calm = append(all.calm, e.measure(s, loaded("/plain")))
		all.disturbed = append(all.disturbed, e.measure(s, loaded("/mirrored")))
	}
	t := e.rep.Table(fmt.Sprintf("%d requests/s to an SSP of %v, each copied to a black hole, or none; medians of %d "+
		"rounds in turn", rate, latency, rounds),
		"mirror", "p99 ms without", "with", "ratio", "failed")
	t.Add(all.doubts(), "black-holed mirror", medianOf(all.calm, p99), medianOf(all.disturbed, p99), mirrorRatio(all), mirrorFailed(all))
	judgeMirror(e.rep, all)
}

// mirrorRatio returns the median of the rounds' ratios of p99.
func mirrorRatio(all turns) float64 {
	var ratios []float64
	for i := range all.calm {
		ratios = append(ratios, p99(all.disturbed[i])/p99(all.calm[i]))
	}
	return stage.Median(ratios)
}

func mirrorFailed(all turns) uint64 { return sumOf(slices.Concat(all.calm, all.disturbed), failed) }

// judgeMirror ignores all doubts if requests failed in runs without doubts.
func judgeMirror(r *results.Report, all turns) {
	ratio, lost, doubts := mirrorRatio(all), mirrorFailed(all), all.doubts()
	for _, runs := range [][]*stage.Figures{all.calm, all.disturbed} {
		if sumOf(runs, failed) > 0 && len(doubtsOf(runs...)) == 0 {
			doubts = nil
		}
	}
	r.Promise("black-holed mirror: the p99 of the main traffic stays within 3 %", ratio <= 1.03 && lost == 0, doubts,
		"The median of the rounds' ratios is %v; %v requests failed.", ratio, lost)
}
