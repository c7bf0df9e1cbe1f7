package tests

import (
	"fmt"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

// sickness is how one SSP is sick.
type sickness struct {
	name    string
	faults  sspsim.Faults
	latency time.Duration
	speaks  sspsim.Protocol
}

var sicknesses = []sickness{
	{name: "accepts and hangs", faults: sspsim.Faults{Hang: sspsim.Always, Stall: sspsim.Always}},
	{name: "refuses connections", faults: sspsim.Faults{Refuse: true, Reset: sspsim.Always}},
	{name: "drops SYNs", faults: sspsim.Faults{BlackHole: true, Stall: sspsim.Always}},
	{name: "resets connections", faults: sspsim.Faults{Reset: sspsim.Always}},
	{name: "responds 503", faults: sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always}}},
	{name: "drips its bodies", faults: sspsim.Faults{Drip: sspsim.Drip{Chance: sspsim.Always,
		Pause: sspsim.Duration(20 * time.Millisecond)}}},
	{name: "takes two seconds", latency: 2 * time.Second},
	{name: "says GOAWAY every 100 requests", faults: sspsim.Faults{GoAway: sspsim.GoAway{Chance: sspsim.Every(100)}},
		speaks: sspsim.TLSHTTP2},
}

const (
	sickRounds = 3
	sickRate   = 100 // requests a second to each SSP
)

// sick makes one of eight SSPs sick in several ways, and measures the requests to the other seven.
// Healthy and sick rounds take turns.
func sick(e *rig.Rig) {
	t := e.Rep.Table(fmt.Sprintf("%d bid requests/s to each of eight SSPs of %v, deadline 150 ms; medians of %d", sickRate,
		healthyLatency, sickRounds),
		"the eighth SSP", "the seven: p50 ms", "p99 ms", "p99 healthy", "ratio", "failed", "of",
		"the sick SSP: answered", "of", "its errors", "adbuffer CPU µs/request", "open files")
	for _, ill := range sicknesses {
		row := sicken(e, ill)
		last := row.disturbed[sickRounds-1]
		seven, calm, eighth := row.disturbed.counts(theSeven...), row.calm.counts(theSeven...), row.disturbed.counts(theEighth)
		before, after := row.calm.median(sevenP99), row.disturbed.median(sevenP99)
		t.Add(row.doubts(), ill.name, row.disturbed.median(sevenP50), after, before, results.Ratio(after/before),
			seven.Failed, seven.Offered, eighth.Answered, eighth.Offered, last.Class(theEighth).Kinds(),
			row.disturbed.median(cpuUs), last.Files)
		e.Rep.Promise("an SSP that "+ill.name+" costs only its own requests",
			after <= 1.10*before && seven.Failed <= calm.Failed, row.doubts(),
			"p99 of the other seven went from %v to %v ms, and %v of their %v requests failed, against %v.", before, after,
			seven.Failed, seven.Offered, calm.Failed)
	}
}

// sicken measures rounds in which the last SSP is healthy, and rounds in which it is sick.
func sicken(e *rig.Rig, ill sickness) turns {
	var ssps []*rig.SSP
	var templates []load.Template
	for i, name := range append(theSeven, theEighth) {
		ssps = append(ssps, &rig.SSP{Name: name, Protocol: "http1", Behaviour: healthyBehaviour(), Seed: uint64(i)})
		templates = append(templates, rig.Bid(name, "/fillbuffer/"+name))
	}
	if ill.speaks != "" {
		ssps[7].Speaks, ssps[7].Protocol = ill.speaks, "http2"
	}
	behaviour := healthyBehaviour()
	behaviour.Faults = ill.faults
	if ill.latency > 0 {
		behaviour.Latency = sspsim.Constant(ill.latency)
	}
	s := e.Start(rig.Setup{SSPs: ssps, Config: rig.Config{Deadline: "150ms"}})
	defer s.Stop()
	// Clients have enough connections, so that requests wait inside adbuffer only.
	loaded := rig.Calmly(poisson(rig.OpenLoop(512, sickRate*8, 500*time.Millisecond,
		e.Time(4*time.Second, time.Second), templates...), 200, 204), true)
	with := func(b sspsim.Behaviour) func() *rig.Figures {
		return func() *rig.Figures {
			s.SSPs[7].Set(b)
			return s.Measure(loaded)
		}
	}
	return inTurn(e, sickRounds, "sick: "+ill.name, with(healthyBehaviour()), with(behaviour))
}

// theSeven are the names of the healthy SSPs.
var theSeven = []string{"s1", "s2", "s3", "s4", "s5", "s6", "s7"}

const theEighth = "s8"

// meanOfSeven returns the mean of a percentile over the healthy SSPs.
func meanOfSeven(f *rig.Figures, percentile func(load.Latency) float64) (mean float64) {
	for _, name := range theSeven {
		mean += percentile(f.Class(name).Latency) / float64(len(theSeven))
	}
	return mean
}

func sevenP50(f *rig.Figures) float64 {
	return meanOfSeven(f, func(l load.Latency) float64 { return l.P50 })
}

func sevenP99(f *rig.Figures) float64 {
	return meanOfSeven(f, func(l load.Latency) float64 { return l.P99 })
}
