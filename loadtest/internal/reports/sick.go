package reports

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/engine"
)

// illness is a way for an SSP to be sick.
type illness struct {
	name  string
	patch sspsim.Behaviour
	h2    bool // of an SSP that speaks HTTP/2
}

var illnesses = []illness{
	{"accepts and hangs", sspsim.Behaviour{Faults: sspsim.Faults{Hang: sspsim.Always, Stall: sspsim.Always}}, false},
	{"refuses connections", sspsim.Behaviour{Faults: sspsim.Faults{Refuse: true, Reset: sspsim.Always}}, false},
	{"drops SYNs", sspsim.Behaviour{Faults: sspsim.Faults{BlackHole: true, Stall: sspsim.Always}}, false},
	{"resets connections", sspsim.Behaviour{Faults: sspsim.Faults{Reset: sspsim.Always}}, false},
	{"answers 503", sspsim.Behaviour{Faults: sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always}}}, false},
	{"drips its bodies", sspsim.Behaviour{Faults: sspsim.Faults{Drip: sspsim.Drip{Chance: sspsim.Always, Pause: 20 * time.Millisecond}}}, false},
	{"takes two seconds", sspsim.Behaviour{Latency: sspsim.Constant(2 * time.Second)}, false},
	{"says GOAWAY every 100 requests", sspsim.Behaviour{Faults: sspsim.Faults{GoAway: sspsim.GoAway{Chance: sspsim.Every(100)}}}, true},
}

// How one illness is measured: healthyLatency is every SSP's, since a constant
// shows what adbuffer adds; measured healthy and sick in turn, sickRounds times,
// of which the medians count.
const (
	healthyLatency = 50 * time.Millisecond
	sickRounds     = 3
	mostRise       = 1.10 // of the others' p99, for the promise to hold
)

// Sick makes one of eight SSPs ill, in every way, and looks at the other seven.
func Sick(ctx context.Context, e *engine.Env) (*results.Report, error) {
	r := e.Report("sick", "One of eight SSPs is sick",
		"Does an SSP that hangs, refuses, resets, drips or is slow cost the others anything?")
	k := &sick{Env: e, report: r}
	if err := k.start(ctx); err != nil {
		return nil, err
	}
	k.table = results.Table{Title: fmt.Sprintf("%d bid requests/s to each of eight SSPs of %v, deadline 150 ms; medians of %d", k.perSSP, healthyLatency, sickRounds),
		Columns: []string{"the eighth SSP", "the seven: p50 ms", "p99 ms", "p99 healthy", "ratio", "failed", "the sick one: answered", "its errors", "adbuffer CPU µs/request", "open files"}}
	k.chart = results.Chart{Title: "p99 of the seven healthy SSPs", Kind: "bar", Y: "ms", Series: []results.Series{{Name: "all healthy"}, {Name: "while the eighth is sick"}}}
	for _, ill := range illnesses {
		if err := k.suffer(ctx, ill); err != nil {
			return nil, fmt.Errorf("%s: %w", ill.name, err)
		}
	}
	r.Verdicts = []results.Verdict{{Promise: "a sick SSP costs only its own requests", Held: k.broken == "", Words: k.words(), Doubted: k.doubted}}
	r.Tables, r.Charts = []results.Table{k.table}, []results.Chart{k.chart}
	return e.Done(r), nil
}

type sick struct {
	*engine.Env
	report  *results.Report
	perSSP  int // requests a second
	ssps    []*rig.SSP
	h2      *rig.SSP // stands in for the last one where HTTP/2 is needed
	proxy   *rig.Adbuffer
	table   results.Table
	chart   results.Chart
	worst   float64 // ratio of p99 to the healthy one
	broken  string  // the first illness that the others felt, one without doubts before those with
	doubted bool    // broken rests on figures with doubts
}

const (
	sspCount = 8
	sickName = "s8"
	sickH2   = "s8h2"
)

func (k *sick) start(ctx context.Context) error {
	k.perSSP = 100
	behaviour := healthyBehaviour()
	var config engine.Config
	config.Deadline = "150ms"
	add := func(name string, protocol sspsim.Protocol, upstream string) (*rig.SSP, error) {
		s, err := k.Rig.StartSSP(rig.SSPOptions{Name: name, Protocol: protocol, Behaviour: behaviour, Seed: uint64(len(k.ssps)), Cores: k.LoadCores})
		if err == nil {
			config.SSPs = append(config.SSPs, engine.SSPConfig{Name: name, URL: s.URL, Protocol: upstream, CAFile: s.CAFile})
		}
		return s, err
	}
	for i := range sspCount {
		s, err := add(fmt.Sprintf("s%d", i+1), sspsim.HTTP1, "http1")
		if err != nil {
			return err
		}
		k.ssps = append(k.ssps, s)
	}
	var err error
	if k.h2, err = add(sickH2, sspsim.TLSHTTP2, "http2"); err != nil {
		return err
	}
	k.proxy, err = k.Rig.StartAdbuffer(ctx, k.Adbuffer, config.YAML(), k.ProxyCores)
	return err
}

func healthyBehaviour() sspsim.Behaviour {
	b := realistic(healthyLatency, healthyLatency)
	b.Latency = sspsim.Constant(healthyLatency)
	return b
}

// suffer measures without and with an illness, in turn, and heals the SSP.
func (k *sick) suffer(ctx context.Context, ill illness) error {
	k.Say("sick: the eighth SSP %s", ill.name)
	patient, name := k.ssps[sspCount-1], sickName
	if ill.h2 {
		patient, name = k.h2, sickH2
	}
	var templates []load.Template
	for i := range sspCount - 1 {
		n := fmt.Sprintf("s%d", i+1)
		templates = append(templates, bid(n, "/fillbuffer/"+n))
	}
	templates = append(templates, bid(name, "/fillbuffer/"+name))
	length := k.Time(4*time.Second, time.Second)
	rate := float64(k.perSSP * sspCount)
	// Clients have connections enough: what waits must wait inside adbuffer.
	plan := engine.OpenLoop(k.proxy.Addr, 512, rate, 500*time.Millisecond, length, templates...)
	plan.Poisson, plan.Statuses, plan.Echo = true, []int{200, 204}, true
	illBehaviour := healthyBehaviour()
	illBehaviour.Faults = ill.patch.Faults
	if ill.patch.Latency != (sspsim.Latency{}) {
		illBehaviour.Latency = ill.patch.Latency
	}
	var healthy, sick []engine.Measured
	for range sickRounds {
		m, err := k.GenerateCalmly(ctx, plan, k.proxy.PID)
		if err != nil {
			return err
		}
		healthy = append(healthy, m)
		if err := patient.Set(illBehaviour); err != nil {
			return err
		}
		if m, err = k.GenerateCalmly(ctx, plan, k.proxy.PID); err != nil {
			return err
		}
		sick = append(sick, m)
		if err := patient.Set(healthyBehaviour()); err != nil {
			return err
		}
	}
	k.judge(ill, healthy, sick)
	return nil
}

// group is what the seven healthy SSPs gave in one measurement: percentiles in
// milliseconds, each the mean of the seven, and counts of requests.
type group struct {
	p50, p99        float64
	failed, offered uint64
}

func others(m *load.Result) group {
	var g group
	for _, c := range m.Whole.Classes[:sspCount-1] {
		g.p50 += c.Latency.P50 / (sspCount - 1)
		g.p99 += c.Latency.P99 / (sspCount - 1)
		g.failed += c.Failed
		g.offered += c.Offered
	}
	return g
}

// overRounds is the median of the percentiles, and the sum of the counts.
func overRounds(all []engine.Measured) group {
	var p50s, p99s []float64
	var g group
	for _, m := range all {
		o := others(m.Result)
		p50s, p99s = append(p50s, o.p50), append(p99s, o.p99)
		g.failed += o.failed
		g.offered += o.offered
	}
	slices.Sort(p50s)
	slices.Sort(p99s)
	g.p50, g.p99 = p50s[len(p50s)/2], p99s[len(p99s)/2]
	return g
}

func (k *sick) judge(ill illness, healthy, sick []engine.Measured) {
	before, during := overRounds(healthy), overRounds(sick)
	last := sick[len(sick)-1]
	patient := last.Whole.Classes[sspCount-1]
	// The sick one's failures are expected; what the generator says about the
	// share of failures does not count here, the rest does.
	var doubts []string
	for _, m := range slices.Concat(healthy, sick) {
		doubts = append(doubts, engine.GeneratorDoubts(m.Result)...)
	}
	slices.Sort(doubts)
	doubts = slices.Compact(doubts)
	k.report.Doubt(ill.name, doubts)
	ratio := during.p99 / before.p99
	k.table.Add(doubts, ill.name, during.p50, during.p99, before.p99, fmt.Sprintf("%.3f", ratio), fmt.Sprintf("%d of %d", during.failed, during.offered),
		fmt.Sprintf("%d of %d", patient.Answered, patient.Offered), errorsOf(patient), last.PerRequest(), last.After.Files)
	k.chart.Labels = append(k.chart.Labels, results.Mark(ill.name, doubts))
	k.chart.Series[0].Values = append(k.chart.Series[0].Values, before.p99)
	k.chart.Series[1].Values = append(k.chart.Series[1].Values, during.p99)
	k.worst = math.Max(k.worst, ratio)
	if (ratio > mostRise || during.failed > before.failed) && (k.broken == "" || k.doubted) {
		k.doubted = len(doubts) > 0
		k.broken = fmt.Sprintf("When the eighth %s, p99 of the seven went from %.1f to %.1f ms, and %d of their %d requests failed, against %d of %d.",
			ill.name, before.p99, during.p99, during.failed, during.offered, before.failed, before.offered)
	}
}

func (k *sick) words() string {
	if k.broken != "" {
		return k.broken
	}
	return fmt.Sprintf("In %d ways to be sick, p99 of the seven others was at most %.3f of what it is when all are healthy, and no more of their requests failed.",
		len(illnesses), k.worst)
}

// errorsOf writes the errors of s by kind, the proxy's own by their reason.
func errorsOf(s load.Summary) string {
	var out []string
	for kind, n := range s.Errors {
		kind = strings.TrimPrefix(strings.Replace(kind, "proxy/", "", 1), "status ")
		out = append(out, fmt.Sprintf("%s: %d", kind, n))
	}
	if len(out) == 0 {
		return "none"
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
