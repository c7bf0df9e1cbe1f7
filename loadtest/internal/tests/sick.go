package tests

import (
	"fmt"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/stage"
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
	sickSSPs   = 8 // the last one is sick
	sickRounds = 3
	sickRate   = 100 // requests a second to each SSP
)

// sick makes one of eight SSPs sick in several ways, and measures the requests to the other seven.
// Healthy and sick rounds take turns.
func sick(e *Experiment) {
	t := e.Rep.Table(fmt.Sprintf("%d bid requests/s to each of eight SSPs of %v, deadline 150 ms; medians of %d", sickRate,
		healthyLatency, sickRounds),
		"the eighth SSP", "the seven: p50 ms", "p99 ms", "p99 healthy", "ratio", "failed", "of",
		"the sick SSP: answered", "of", "its errors", "adbuffer CPU µs/request", "open files")
	for _, ill := range sicknesses {
		row := sicken(e, ill)
		last := row.disturbed[sickRounds-1]
		ofSick := func(count func(load.Summary) uint64) uint64 {
			return sumOf(row.disturbed, func(f *stage.Figures) uint64 { return count(f.Class(sspName(sickSSPs - 1))) })
		}
		before, after := medianOf(row.calm, sevenP99), medianOf(row.disturbed, sevenP99)
		lost, lostCalm := sumOf(row.disturbed, sevenFailed), sumOf(row.calm, sevenFailed)
		of := sumOf(row.disturbed, func(f *stage.Figures) uint64 { return theSeven(f).Offered })
		t.Add(row.doubts(), ill.name, medianOf(row.disturbed, func(f *stage.Figures) float64 { return theSeven(f).Latency.P50 }),
			after, before, results.Ratio(after/before), lost, of,
			ofSick(func(s load.Summary) uint64 { return s.Answered }), ofSick(func(s load.Summary) uint64 { return s.Offered }),
			last.Class(sspName(sickSSPs-1)).Kinds(), medianOf(row.disturbed, cpuUs), last.Files)
		e.Rep.Promise("an SSP that "+ill.name+" costs only its own requests", after <= 1.10*before && lost <= lostCalm, row.doubts(),
			"p99 of the other seven went from %v to %v ms, and %v of their %v requests failed, against %v.", before, after, lost,
			of, lostCalm)
	}
}

// sicken measures rounds in which the last SSP is healthy, and rounds in which it is sick.
func sicken(e *Experiment, ill sickness) turns {
	var ssps []*stage.SSP
	var templates []load.Template
	for i := range sickSSPs {
		name := sspName(i)
		ssps = append(ssps, &stage.SSP{Name: name, Protocol: "http1", Behaviour: healthyBehaviour(), Seed: uint64(i)})
		templates = append(templates, stage.Bid(name, "/fillbuffer/"+name))
	}
	if ill.speaks != "" {
		ssps[sickSSPs-1].Speaks, ssps[sickSSPs-1].Protocol = ill.speaks, "http2"
	}
	behaviour := healthyBehaviour()
	behaviour.Faults = ill.faults
	if ill.latency > 0 {
		behaviour.Latency = sspsim.Constant(ill.latency)
	}
	s := e.start(stage.Setup{SSPs: ssps, Config: stage.Config{Deadline: "150ms"}})
	defer s.Stop()
	// Clients have enough connections, so that requests wait inside adbuffer only.
	loaded := stage.Calmly(poisson(stage.OpenLoop(512, sickRate*sickSSPs, 500*time.Millisecond,
		e.Time(4*time.Second, time.Second), templates...), 200, 204), true)
	with := func(b sspsim.Behaviour) func() *stage.Figures {
		return func() *stage.Figures {
			e.set(s.SSPs[sickSSPs-1], b)
			return e.measure(s, loaded)
		}
	}
	return e.inTurn(sickRounds, "sick: "+ill.name, with(healthyBehaviour()), with(behaviour))
}

func sspName(i int) string { return fmt.Sprintf("s%d", i+1) }

// theSeven returns the figures of the healthy SSPs together: means of percentiles, sums of counts.
func theSeven(f *stage.Figures) (sum load.Summary) {
	const seven = sickSSPs - 1
	for i := range seven {
		s := f.Class(sspName(i))
		sum.Offered, sum.Failed = sum.Offered+s.Offered, sum.Failed+s.Failed
		sum.Latency.P50 += s.Latency.P50 / seven
		sum.Latency.P99 += s.Latency.P99 / seven
	}
	return sum
}

func sevenP99(f *stage.Figures) float64 { return theSeven(f).Latency.P99 }

func sevenFailed(f *stage.Figures) uint64 { return theSeven(f).Failed }
