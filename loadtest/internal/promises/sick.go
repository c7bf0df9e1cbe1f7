package promises

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/bench"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/record"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/wire"
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

// Sick makes one of eight SSPs ill, in every way, and looks at the other seven.
func Sick(ctx context.Context, e *bench.Env) (*results.Report, error) {
	r := e.Report("sick", "One of eight SSPs is sick",
		"Does an SSP that hangs, refuses, resets, drips or is slow cost the others anything?")
	k := &sick{Env: e, report: r}
	if err := k.start(ctx); err != nil {
		return nil, err
	}
	k.table = results.Table{Title: fmt.Sprintf("%d bid requests/s to each of eight SSPs, deadline 150 ms", k.perSSP),
		Columns: []string{"the eighth SSP", "the seven: p50 ms", "p99 ms", "p99 before", "failed", "the sick one: answered", "its errors", "adbuffer CPU µs/request", "open files"}}
	k.chart = results.Chart{Title: "p99 of the seven healthy SSPs", Kind: "bar", Y: "ms", Series: []results.Series{{Name: "before"}, {Name: "while the eighth is sick"}}}
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
	*bench.Env
	report  *results.Report
	perSSP  int // requests a second
	ssps    []*rig.SSP
	h2      *rig.SSP // stands in for the last one where HTTP/2 is needed
	proxy   *rig.Adbuffer
	table   results.Table
	chart   results.Chart
	worst   float64 // rise of p99, ms
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
	behaviour := realistic(20*time.Millisecond, 80*time.Millisecond)
	var config bench.Config
	config.Deadline = "150ms"
	add := func(name string, protocol sspsim.Protocol, upstream string) (*rig.SSP, error) {
		s, err := k.Rig.StartSSP(rig.SSPOptions{Name: name, Protocol: protocol, Behaviour: behaviour, Seed: uint64(len(k.ssps)), Cores: k.LoadCores})
		if err == nil {
			config.SSPs = append(config.SSPs, bench.SSPConfig{Name: name, URL: s.URL, Protocol: upstream, CAFile: s.CAFile})
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

// suffer measures before and during an illness, and heals the SSP.
func (k *sick) suffer(ctx context.Context, ill illness) error {
	k.Say("sick: the eighth SSP %s", ill.name)
	patient, name := k.ssps[sspCount-1], sickName
	if ill.h2 {
		patient, name = k.h2, sickH2
	}
	var templates []wire.Template
	for i := range sspCount - 1 {
		n := fmt.Sprintf("s%d", i+1)
		templates = append(templates, bid(n, "/fillbuffer/"+n))
	}
	templates = append(templates, bid(name, "/fillbuffer/"+name))
	length := k.Time(10*time.Second, 2*time.Second)
	rate := float64(k.perSSP * sspCount)
	// Clients have connections enough: what waits must wait inside adbuffer.
	plan := bench.OpenLoop(k.proxy.Addr, 512, rate, 500*time.Millisecond, length, templates...)
	plan.Poisson, plan.Statuses, plan.Echo = true, []int{200, 204}, true
	before, err := k.GenerateCalmly(ctx, plan, k.proxy.PID)
	if err != nil {
		return err
	}
	healthy := realistic(20*time.Millisecond, 80*time.Millisecond)
	b := healthy
	b.Faults = ill.patch.Faults
	if ill.patch.Latency != (sspsim.Latency{}) {
		b.Latency = ill.patch.Latency
	}
	if err := patient.Set(b); err != nil {
		return err
	}
	during, err := k.GenerateCalmly(ctx, plan, k.proxy.PID)
	if err != nil {
		return err
	}
	if err := patient.Set(healthy); err != nil {
		return err
	}
	k.judge(ill, before, during)
	return nil
}

// others is the worst p50 and p99 among the healthy SSPs' classes, and the sum
// of what failed for another reason than the deadline.
func others(m *load.Result) (p50, p99 float64, failed uint64, offered uint64) {
	for _, c := range m.Whole.Classes[:sspCount-1] {
		p50, p99 = math.Max(p50, c.Latency.P50), p99+c.Latency.P99/(sspCount-1)
		failed += c.Failed
		offered += c.Offered
	}
	return p50, p99, failed, offered
}

func (k *sick) judge(ill illness, before, during bench.Measured) {
	_, p99Before, failedBefore, _ := others(before.Result)
	p50, p99, failed, offered := others(during.Result)
	patient := during.Whole.Classes[sspCount-1]
	// The sick one's failures are expected; what the generator says about the
	// share of failures does not count here, the rest does.
	doubts := append(bench.GeneratorDoubts(before.Result), bench.GeneratorDoubts(during.Result)...)
	k.report.Doubt(ill.name, doubts)
	k.table.Add(doubts, ill.name, p50, p99, p99Before, fmt.Sprintf("%d of %d", failed, offered), fmt.Sprintf("%d of %d", patient.Answered, patient.Offered), errorsOf(patient), during.PerRequest(), during.After.Files)
	k.chart.Labels = append(k.chart.Labels, results.Mark(ill.name, doubts))
	k.chart.Series[0].Values = append(k.chart.Series[0].Values, p99Before)
	k.chart.Series[1].Values = append(k.chart.Series[1].Values, p99)
	k.worst = math.Max(k.worst, p99-p99Before)
	// What failed before (answers after the deadline) may fail during.
	allowed := failedBefore*2 + offered/200
	if (p99 > p99Before*1.25+10 || failed > allowed) && (k.broken == "" || k.doubted) {
		k.doubted = len(doubts) > 0
		k.broken = fmt.Sprintf("When the eighth %s, p99 of the seven went from %.0f to %.0f ms and %d of %d requests failed.", ill.name, p99Before, p99, failed, offered)
	}
}

func (k *sick) words() string {
	if k.broken != "" {
		return k.broken
	}
	return fmt.Sprintf("In %d ways to be sick, p99 of the seven others rose by %.0f ms at most, and no more of their requests failed than before.", len(illnesses), k.worst)
}

// errorsOf writes the errors of s by kind, the proxy's own by their reason.
func errorsOf(s record.Summary) string {
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
