package tests

import (
	"context"
	"errors"
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
func endpoints(ctx context.Context, e *stage.Env) (*results.Report, error) {
	r := e.Report("endpoints", "One of two endpoints responds 500",
		"How many requests does an endpoint cost that fails, and how soon is it back after it was repaired?")
	for _, part := range []func(context.Context, *stage.Env, *results.Report) error{failOne, regions, spares, mirror} {
		if err := part(ctx, e, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// ejection has what a failing endpoint cost.
type ejection struct {
	first, next *stage.Figures // in the first window after the failure, and in the next one
	back        float64        // after how many seconds the repaired endpoint was back
}

// failOne makes one of two endpoints fail, at adbuffer and at other proxies.
func failOne(ctx context.Context, e *stage.Env, r *results.Report) error {
	t := r.Table(fmt.Sprintf("%d requests/s to two endpoints; then one responds 500 to everything", pairRate),
		"proxy", "failed, first window", "of", "failed, next window", "of", "share", "back after, s")
	for _, p := range []struct{ name, program, more string }{
		{name: "adbuffer"}, {name: "adbuffer, ejection off", more: "ejection: {enabled: false}"},
		{name: "Envoy, outlier detection", program: "envoy"}, {name: "HAProxy, observe layer7", program: "haproxy"},
	} {
		err := stage.Needs(r, p.program)
		if stage.Skips(r, err) {
			continue
		}
		if err != nil {
			return err
		}
		e.Say("endpoints: %s", p.name)
		// A breaker would shed requests that the comparison must count as failed.
		ssp := &stage.SSP{Name: "ssp", Endpoints: 2, Behaviour: steady(5 * time.Millisecond),
			More: []string{"breaker: {enabled: false}"}}
		if p.more != "" {
			ssp.More = append(ssp.More, p.more)
		}
		out, err := eject(ctx, e, stage.Setup{SSPs: []*stage.SSP{ssp}, Program: p.program,
			Route: &rig.Route{Name: "pair", Eject: true}, Config: stage.Config{Deadline: "2s"}})
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		t.Add(doubtsOf(out.first, out.next), p.name, out.first.Failed, out.first.Offered, out.next.Failed,
			out.next.Offered,
			results.Percent(share(out.next.Failed, out.next.Offered)), out.back)
		if p.name == "adbuffer" {
			judgeEjection(r, out)
		}
	}
	return nil
}

// pairRate is a number of requests a second. Half of them fail where nothing is ejected.
const pairRate = 200

func eject(ctx context.Context, e *stage.Env, setup stage.Setup) (out ejection, err error) {
	s, err := e.Start(ctx, setup)
	if err != nil {
		return out, err
	}
	defer s.Stop()
	plan := func(length time.Duration) load.Plan { return pages(pairRate, 0, length, "/fillbuffer") }
	window := stage.Generate(plan(e.Time(10*time.Second, 3*time.Second)), true)
	_, err = s.Measure(ctx, stage.Generate(plan(time.Second), false))
	if err != nil {
		return out, err
	}
	healthy := setup.SSPs[0].Behaviour
	broken := healthy
	broken.Faults.Status = sspsim.Status{Chance: sspsim.Always, Code: 500}
	err = s.SSPs[1].Set(broken)
	if err != nil {
		return out, err
	}
	out.first, err = s.Measure(ctx, window)
	if err != nil {
		return out, err
	}
	out.next, err = s.Measure(ctx, window)
	if err != nil {
		return out, err
	}
	err = s.SSPs[1].Set(healthy)
	if err != nil {
		return out, err
	}
	out.back, err = until(ctx, s, plan(time.Second), 30*time.Second,
		func(of load.Summary, got []float64) bool { return got[1] > 0.4*float64(of.Offered) })
	return out, err
}

func judgeEjection(r *results.Report, out ejection) {
	r.Promise("an endpoint that fails costs less than 1 % of the requests after one window, and is back within 10 s",
		share(out.next.Failed, out.next.Offered) < 0.01 && out.back <= 10, nil,
		"%v of %v requests failed in the window after the first; the endpoint was back %v s after it was repaired.",
		out.next.Failed, out.next.Offered, out.back)
}

// until repeats a plan until its results are good. It returns after how many seconds the last one began, or
// never if that did not happen within limit. got is how many requests each endpoint received.
func until(ctx context.Context, s *stage.Stage, plan load.Plan, limit time.Duration,
	good func(of load.Summary, got []float64) bool) (float64, error) {
	last := make([]uint64, len(s.SSPs))
	received := func() (got []float64, err error) {
		for i, ssp := range s.SSPs {
			c, failed := ssp.Counters()
			err = errors.Join(err, failed)
			got, last[i] = append(got, float64(c.Requests-last[i])), c.Requests
		}
		return got, err
	}
	if _, err := received(); err != nil {
		return never, err
	}
	for began := time.Now(); time.Since(began) < limit; {
		at := time.Since(began)
		result, err := s.Generate(ctx, plan, nil)
		if err != nil {
			return never, err
		}
		got, err := received()
		if err != nil || ctx.Err() != nil {
			return never, errors.Join(err, ctx.Err())
		}
		if good(result.Whole, got) {
			return at.Seconds(), nil
		}
	}
	return never, nil
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
func regions(ctx context.Context, e *stage.Env, r *results.Report) error {
	healthy := steady(5 * time.Millisecond)
	t := r.Table(fmt.Sprintf("%d requests/s; the endpoint of priority 0 is dead for %v", regionRate,
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
		e.Say("endpoints: %s", death.name)
		s, err := e.Start(ctx, stage.Setup{Config: stage.Config{Deadline: "300ms"},
			SSPs: []*stage.SSP{{Name: "ssp", Endpoints: 2, Spare: true, Behaviour: healthy,
				More: []string{"breaker: {enabled: false}"}}}})
		if err != nil {
			return err
		}
		dead := healthy
		dead.Faults = death.faults
		var taken, given float64
		f, err := beside(ctx, s, stage.Generate(pages(regionRate, 0, regionEnds, "/fillbuffer"), true),
			func(ctx context.Context) (err error) {
				taken, given, err = regionDeath(ctx, s, dead, healthy, death.cut)
				return err
			})
		s.Stop()
		if err != nil {
			return err
		}
		t.Add(f.Doubts, death.name, taken, f.Failed, f.Offered, given)
		judgeRegion(r, death.name, taken, given, f)
	}
	return nil
}

// regionDeath makes the first endpoint die and come back during the load. It returns after how many
// seconds the requests have moved to the second one and back.
func regionDeath(ctx context.Context, s *stage.Stage, dead, healthy sspsim.Behaviour, cut bool) (taken, given float64,
	err error) {
	began := time.Now()
	stage.Sleep(ctx, regionDies)
	if err := s.SSPs[0].Set(dead); err != nil {
		return never, never, err
	}
	if cut {
		if err := s.SSPs[0].CloseConnections(); err != nil {
			return never, never, err
		}
	}
	taken, err = untilLoaded(ctx, s.SSPs[1], 3*time.Second)
	if err != nil {
		return taken, never, err
	}
	stage.Sleep(ctx, time.Until(began.Add(regionWorks)))
	if err := s.SSPs[0].Set(healthy); err != nil {
		return taken, never, err
	}
	given, err = untilLoaded(ctx, s.SSPs[0], time.Until(began.Add(regionEnds-time.Second)))
	return taken, given, err
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
func spares(ctx context.Context, e *stage.Env, r *results.Report) error {
	t := r.Table(fmt.Sprintf("%d requests/s with a timeout of %v to two primaries and a spare; then the primaries fail",
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
			err := stage.Needs(r, p.program)
			if stage.Skips(r, err) {
				continue
			}
			if err != nil {
				return err
			}
			e.Say("endpoints: %s, primaries %s", p.name, failure.name)
			out, err := failPrimaries(ctx, e, p.program, failure.broken)
			if err != nil {
				return fmt.Errorf("%s, primaries %s: %w", p.name, failure.name, err)
			}
			t.Add(out.next.Doubts, failure.name, p.name, out.failing, out.next.Answered, out.next.Offered,
				results.Percent(share(out.next.Answered, out.next.Offered)), out.repaired)
			if p.program == "" {
				judgeSpare(r, failure.name, out)
			}
		}
	}
	return nil
}

func failPrimaries(ctx context.Context, e *stage.Env, program string, broken sspsim.Behaviour) (out takeover,
	err error) {
	const slice = 500 * time.Millisecond
	healthy := steady(5 * time.Millisecond)
	s, err := e.Start(ctx, stage.Setup{SSPs: []*stage.SSP{{Name: "ssp", Endpoints: 3, Spare: true, Behaviour: healthy}},
		Program: program,
		Route:   &rig.Route{Name: "spare", Eject: true, Timeout: spareTimeout},
		Config:  stage.Config{Deadline: spareTimeout.String()}})
	if err != nil {
		return out, err
	}
	defer s.Stop()
	plan := func(length time.Duration) load.Plan { return pages(spareRate, 0, length, "/fillbuffer") }
	set := func(b sspsim.Behaviour) error { return errors.Join(s.SSPs[0].Set(b), s.SSPs[1].Set(b)) }
	// A busy machine may have ejected a primary.
	_, err = until(ctx, s, plan(2*time.Second), 20*time.Second,
		func(_ load.Summary, got []float64) bool { return got[2] == 0 })
	if err != nil {
		return out, err
	}
	err = set(broken)
	if err != nil {
		return out, err
	}
	// Only the spare can respond in time.
	out.failing, err = until(ctx, s, plan(slice), 20*time.Second,
		func(of load.Summary, _ []float64) bool { return float64(of.Failed) <= 0.01*float64(of.Offered) })
	if err != nil {
		return out, err
	}
	out.next, err = s.Measure(ctx, stage.Generate(plan(e.Time(10*time.Second, 3*time.Second)), true))
	if err != nil {
		return out, err
	}
	err = set(healthy)
	if err != nil {
		return out, err
	}
	out.repaired, err = until(ctx, s, plan(slice), 30*time.Second,
		func(of load.Summary, got []float64) bool { return got[2] < 0.2*float64(of.Offered) })
	return out, err
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

// mirrorRound is a run without a mirror and one with a mirror that is a black hole.
type mirrorRound struct{ plain, mirrored *stage.Figures }

// mirror compares p99 with a black-holed mirror and without a mirror. Short runs of both take turns, so
// that other work of the machine slows both.
func mirror(ctx context.Context, e *stage.Env, r *results.Report) error {
	const (
		rate    = 500
		rounds  = 8
		latency = 30 * time.Millisecond
	)
	s, err := e.Start(ctx, stage.Setup{
		SSPs: []*stage.SSP{{Name: "main", Behaviour: steady(latency)},
			{Name: "hole", Behaviour: sspsim.Behaviour{Faults: sspsim.Faults{BlackHole: true}}}},
		Config: stage.Config{Deadline: "300ms", Routes: []string{
			"{name: plain, match: {path: /plain}, ssps: [main]}",
			"{name: mirrored, match: {path: /mirrored}, ssps: [main], mirror: {ssp: hole, share: 1}}",
		}}})
	if err != nil {
		return err
	}
	defer s.Stop()
	loaded := func(path string) stage.Load {
		return stage.Generate(pages(rate, 500*time.Millisecond, e.Time(5*time.Second, 2*time.Second), path), false)
	}
	var all []mirrorRound
	for n := range rounds {
		e.Say("endpoints: black-holed mirror, round %d of %d", n+1, rounds)
		var round mirrorRound
		round.plain, err = s.Measure(ctx, loaded("/plain"))
		if err != nil {
			return err
		}
		round.mirrored, err = s.Measure(ctx, loaded("/mirrored"))
		if err != nil {
			return err
		}
		all = append(all, round)
	}
	t := r.Table(fmt.Sprintf("%d requests/s to an SSP of %v, each copied to a black hole, or none; medians of %d "+
		"rounds in turn", rate, latency, rounds),
		"mirror", "p99 ms without", "with", "ratio", "failed")
	t.Add(mirrorDoubts(all), "black-holed mirror",
		medianOf(all, func(m mirrorRound) float64 { return m.plain.Latency.P99 }),
		medianOf(all, func(m mirrorRound) float64 { return m.mirrored.Latency.P99 }), medianOf(all, mirrorRound.ratio),
		sumOf(all, mirrorRound.failed))
	judgeMirror(r, all)
	return nil
}

func (m mirrorRound) ratio() float64 { return m.mirrored.Latency.P99 / m.plain.Latency.P99 }
func (m mirrorRound) failed() uint64 { return m.mirrored.Failed + m.plain.Failed }

// mirrorDoubts returns the doubts about all runs.
func mirrorDoubts(all []mirrorRound) []string {
	plain, mirrored := mirrorRuns(all)
	return doubtsOf(slices.Concat(plain, mirrored)...)
}

// mirrorRuns returns the runs without a mirror, and those with one.
func mirrorRuns(all []mirrorRound) (plain, mirrored []*stage.Figures) {
	for _, round := range all {
		plain, mirrored = append(plain, round.plain), append(mirrored, round.mirrored)
	}
	return plain, mirrored
}

// judgeMirror ignores all doubts if requests failed in runs without doubts.
func judgeMirror(r *results.Report, all []mirrorRound) {
	ratio, doubts := medianOf(all, mirrorRound.ratio), mirrorDoubts(all)
	plain, mirrored := mirrorRuns(all)
	for _, runs := range [][]*stage.Figures{plain, mirrored} {
		failed := sumOf(runs, func(f *stage.Figures) uint64 { return f.Failed })
		if failed > 0 && len(doubtsOf(runs...)) == 0 {
			doubts = nil
		}
	}
	failed := sumOf(all, mirrorRound.failed)
	r.Promise("black-holed mirror: the p99 of the main traffic stays within 3 %", ratio <= 1.03 && failed == 0, doubts,
		"The median of the rounds' ratios is %v; %v requests failed.", ratio, failed)
}
