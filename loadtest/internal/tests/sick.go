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

// sick makes one of eight SSPs sick in several ways, and measures the requests to the other seven.
// Healthy and sick rounds take turns.
func sick(e *stage.Env) *stage.Test {
	const (
		ssps   = 8
		rounds = 3
		perSSP = 100 // requests a second
	)
	t := &stage.Test{Kind: "sick", Title: "One of eight SSPs is sick", Question: "Does an SSP that hangs, refuses, resets, drips or is slow cost the other SSPs anything?", Rounds: rounds,
		Tables: []stage.Table{{Title: fmt.Sprintf("%d bid requests/s to each of eight SSPs of %v, deadline 150 ms; medians of %d", perSSP, healthyLatency, rounds), Heads: []string{"the eighth SSP"},
			Columns: []stage.Column{{Head: "the seven: p50 ms", Value: "sick.others.p50"}, {Head: "p99 ms", Value: "sick.others.p99"}, {Head: "p99 healthy", Value: "healthy.others.p99"}, {Head: "ratio", Value: "sick.others.p99 / healthy.others.p99", As: "x"},
				{Head: "failed", Value: "sick.others.failed"}, {Head: "of", Value: "sick.others.offered"}, {Head: "the sick SSP: answered", Value: "sick.s8.answered"}, {Head: "of", Value: "sick.s8.offered"}, {Head: "its errors", Value: "sick.s8.errors"},
				{Head: "adbuffer CPU µs/request", Value: "sick.cpu_us"}, {Head: "open files", Value: "sick.files"}}}},
		Charts: []stage.Chart{{Title: "p99 of the seven healthy SSPs", Y: "ms", Series: []stage.Series{{Name: "all healthy", Value: "healthy.others.p99"}, {Name: "while the eighth is sick", Value: "sick.others.p99"}}}},
		Promises: []stage.Promise{{Doubtful: true, Text: "a sick SSP costs only its own requests", If: "sick.others.p99 / healthy.others.p99 <= 1.10 and sick.others.failed <= healthy.others.failed",
			Words: "Nearest to the limit was the eighth that {row}: p99 of the seven went from {healthy.others.p99} to {sick.others.p99} ms, and {sick.others.failed} of their {sick.others.offered} requests failed, against {healthy.others.failed}."}},
	}
	for _, ill := range []struct {
		name    string
		faults  sspsim.Faults
		latency time.Duration
		speaks  sspsim.Protocol
	}{
		{name: "accepts and hangs", faults: sspsim.Faults{Hang: sspsim.Always, Stall: sspsim.Always}},
		{name: "refuses connections", faults: sspsim.Faults{Refuse: true, Reset: sspsim.Always}},
		{name: "drops SYNs", faults: sspsim.Faults{BlackHole: true, Stall: sspsim.Always}},
		{name: "resets connections", faults: sspsim.Faults{Reset: sspsim.Always}},
		{name: "responds 503", faults: sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always}}},
		{name: "drips its bodies", faults: sspsim.Faults{Drip: sspsim.Drip{Chance: sspsim.Always, Pause: sspsim.Duration(20 * time.Millisecond)}}},
		{name: "takes two seconds", latency: 2 * time.Second},
		{name: "says GOAWAY every 100 requests", faults: sspsim.Faults{GoAway: sspsim.GoAway{Chance: sspsim.Every(100)}}, speaks: sspsim.TLSHTTP2},
	} {
		var of []*stage.SSP
		var templates []load.Template
		for i := range ssps {
			name := fmt.Sprintf("s%d", i+1)
			of = append(of, &stage.SSP{Name: name, Protocol: "http1", Behaviour: healthyBehaviour(), Seed: uint64(i)})
			templates = append(templates, stage.Bid(name, "/fillbuffer/"+name))
		}
		patient := of[ssps-1]
		if patient.Speaks = ill.speaks; ill.speaks != "" {
			patient.Protocol = "http2"
		}
		sickness, well := healthyBehaviour(), healthyBehaviour()
		if sickness.Faults = ill.faults; ill.latency > 0 {
			sickness.Latency = sspsim.Constant(ill.latency)
		}
		// Clients have enough connections, so that requests wait inside adbuffer only.
		drive := stage.Calmly(poisson(stage.OpenLoop(512, perSSP*ssps, 500*time.Millisecond, e.Time(4*time.Second, time.Second), templates...), 200, 204), true)
		t.Trials = append(t.Trials, stage.Trial{Name: ill.name, SSPs: of, Server: stage.Server{Config: stage.Config{Deadline: "150ms"}},
			Steps:  []stage.Step{{Name: "healthy", Load: drive}, {Name: "sick", Load: drive, Before: set(ssps-1, sickness, &well)}},
			Derive: func(s *stage.Sample) { others(s, "healthy.", ssps-1); others(s, "sick.", ssps-1) }})
	}
	return t
}

// others adds the figures of the first n SSPs together: means of percentiles, sums of counts.
func others(s *stage.Sample, step string, n int) {
	for _, name := range []string{"p50", "p99", "failed", "offered"} {
		sum := 0.0
		for i := range n {
			sum += s.Values[fmt.Sprintf("%ss%d.%s", step, i+1, name)]
		}
		if name[0] == 'p' {
			sum /= float64(n)
		}
		s.Values[step+"others."+name] = sum
	}
}

// endpoints makes one of an SSP's two endpoints respond 500, and repairs it later. In further trials a
// region dies, and a mirror is a black hole.
func endpoints(e *stage.Env) *stage.Test {
	const rate = 200 // requests a second; half of them fail where nothing is ejected
	window := e.Time(10*time.Second, 3*time.Second)
	t := &stage.Test{Kind: "endpoints", Title: "One of two endpoints responds 500", Question: "How many requests does an endpoint cost that fails, and how soon is it back after it was repaired?",
		Tables: []stage.Table{{Title: fmt.Sprintf("%d requests/s to two endpoints; then one responds 500 to everything", rate), Heads: []string{"proxy"},
			Columns: []stage.Column{{Head: "failed, first window", Value: "first.failed"}, {Head: "of", Value: "first.offered"}, {Head: "failed, next window", Value: "next.failed"}, {Head: "of", Value: "next.offered"}, {Head: "share", Value: "next.failed / next.offered", As: "%"}, {Head: "back after, s", Value: "repaired.after"}}}},
		Charts: []stage.Chart{{Title: "Failed requests", Y: "share", Series: []stage.Series{{Name: "first window", Value: "first.failed / first.offered"}, {Name: "next window", Value: "next.failed / next.offered"}}}},
		Promises: []stage.Promise{{Text: "an endpoint that fails costs less than 1 % of the requests after one window, and is back within 10 s", If: "adbuffer:next.failed / adbuffer:next.offered < 0.01 and adbuffer:repaired.after <= 10",
			Words: "{adbuffer:next.failed} of {adbuffer:next.offered} requests failed in the window after the first; the endpoint was back {adbuffer:repaired.after} s after it was repaired."}},
	}
	healthy := steady(5 * time.Millisecond)
	broken := healthy
	broken.Faults.Status = sspsim.Status{Chance: sspsim.Always, Code: 500}
	plan := func(length time.Duration) load.Plan { return pages(rate, 0, length, "/fillbuffer") }
	for _, p := range []struct {
		name, program, more string
	}{
		{name: "adbuffer"}, {name: "adbuffer, ejection off", more: "ejection: {enabled: false}"},
		{name: "Envoy, outlier detection", program: "envoy"}, {name: "HAProxy, observe layer7", program: "haproxy"},
	} {
		// A breaker would shed requests that the comparison must count as failed.
		ssp := &stage.SSP{Name: "ssp", Endpoints: 2, Behaviour: healthy, More: []string{"breaker: {enabled: false}"}}
		if p.more != "" {
			ssp.More = append(ssp.More, p.more)
		}
		t.Trials = append(t.Trials, stage.Trial{Name: p.name, SSPs: []*stage.SSP{ssp}, Server: stage.Server{Program: p.program, Route: &rig.Route{Name: "pair", Eject: true}, Config: stage.Config{Deadline: "2s"}},
			Steps: []stage.Step{{Name: "calm", Load: stage.Generate(plan(time.Second), false)},
				{Name: "first", Before: set(1, broken, nil), Load: stage.Generate(plan(window), true)}, {Name: "next", Load: stage.Generate(plan(window), true)},
				{Name: "repaired", Before: set(1, healthy, nil), Load: until(plan(time.Second), 30*time.Second, func(of load.Summary, got []float64) bool { return got[1] > 0.4*float64(of.Offered) })}}})
	}
	addRegions(t)
	addSpare(e, t)
	addMirror(e, t)
	return t
}

// until repeats a plan until its results are good. Its value is after how many seconds the last one began, or
// never if that did not happen within limit. got is how many requests each endpoint received.
func until(plan load.Plan, limit time.Duration, good func(of load.Summary, got []float64) bool) stage.Driver {
	return func(ctx context.Context, s *stage.Stage) (*stage.Sample, error) {
		last := make([]uint64, len(s.SSPs))
		received := func() (got []float64, err error) {
			for i, ssp := range s.SSPs {
				c, failed := ssp.Counters()
				err = errors.Join(err, failed)
				got, last[i] = append(got, float64(c.Requests-last[i])), c.Requests
			}
			return got, err
		}
		after := never
		_, err := received()
		for began := time.Now(); err == nil && after == never && time.Since(began) < limit; {
			at := time.Since(began)
			r, failed := s.Generate(ctx, plan, nil)
			if failed != nil {
				return nil, failed
			}
			var got []float64
			if got, err = received(); good(r.Whole, got) {
				after = at.Seconds()
			}
		}
		return &stage.Sample{Values: stage.Values{"after": after}}, err
	}
}
