package tests

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"adbuffer/internal/test/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

func overloadCommand() Command {
	return Command{Name: "overload", Short: "More requests than one core carries, beside Envoy",
		Question: "Does goodput survive overload, and are the right requests refused?",
		Long: `Offers half to four times what one core carries: goodput, late responses, refusals by priority, beside
Envoy (overload manager), which is taken from $ENVOY or $PATH. Then a noisy neighbour takes a third
of the core, and 10 000 clients connect at once to a cold core.`,
		Test: overload, Example: "  ENVOY=$(scripts/envoy) go run ./loadtest overload --scale 0.5"}
}

// overload sends more requests than one core carries, shares the core with a neighbour, and starts adbuffer cold.
func overload(e *rig.Rig) {
	sweep(e)
	neighbour(e)
	coldCore(e)
}

const (
	sweepDeadline = 200 * time.Millisecond // later responses are late
	sweepTimeout  = 5 * sweepDeadline      // when clients give up
	criticalShare = 0.1                    // share of critical requests
	sweepLegs     = 32                     // SSPs to which each request goes
	maxSweepConns = 8000                   // a process with 20,000 descriptors can have as many on both sides
)

var sweepBody = sspsim.Size{P50: 4000, P95: 8000, Max: 20000}

// sweepRow is an offered load and its figures.
type sweepRow struct {
	factor       float64 // the offered rate, divided by the rate that the core carries
	*rig.Figures         // its rate is goodput: responses a second within the deadline
}

// refused returns the share of a class that got a status of 500 and above.
func refused(s load.Summary) float64 {
	n := uint64(0)
	for status, count := range s.Statuses {
		if status >= 500 {
			n += count
		}
	}
	return share(n, max(s.Offered, 1))
}

// sweep offers multiples of the rate that one core carries. Each bid request goes compressed to many SSPs, so the
// proxy's core carries few bid requests, and the other core is never saturated, though it sends up to four times as
// many and responds for the SSPs. The generator has a connection for each request within the timeout; with fewer
// connections, requests would wait in the generator. HAProxy is not compared, since it has no limit by CPU.
func sweep(e *rig.Rig) {
	up := constantUpstream(e, kilobyte)
	t := e.Rep.Table(fmt.Sprintf("offered load, in multiples of what one core carries; clients wait for %v", sweepDeadline),
		"proxy", "load", "offered/s", "goodput/s", "of the peak", "p99 ms", "served late", "critical refused", "normal refused",
		"CPU µs/response")
	var carried float64
	for _, p := range []struct {
		name, program string
		refuses       bool
	}{{"adbuffer", "", true}, {"adbuffer, overload off", "", false}, {"Envoy, overload manager", "envoy", true}} {
		if !e.Has(p.program) {
			continue
		}
		if p.program != "" || p.refuses { // adbuffer gets the same load twice
			carried = carries(e, p.name, sweepSetup(p.program, false, up))
		}
		if p.program == "" && p.refuses {
			carried = peakOf(sweepOne(e, p.name, sweepSetup(p.program, p.refuses, up), carried, []float64{1, 1.2}))
		}
		rows := sweepOne(e, p.name, sweepSetup(p.program, p.refuses, up), carried, []float64{0.5, 0.9, 1.2, 2, 4})
		peak := peakOf(rows)
		for _, row := range rows {
			late := share(row.Errors[load.Late], max(row.Errors[load.Late]+row.Answered, 1)) // of the served responses
			critical, normal := refused(row.Class("critical")), refused(row.Class("normal"))
			t.Add(row.Doubts, p.name, fmt.Sprintf("%v×", row.factor), float64(row.Offered)/max(row.Seconds, 1), row.Rate,
				results.Percent(row.Rate/peak), row.Latency.P99, results.Percent(late), results.Percent(critical),
				results.Percent(normal), row.CPUus)
			if p.program != "" || !p.refuses {
				continue
			}
			if minShare := map[float64]float64{2: 0.85, 4: 0.75}[row.factor]; minShare > 0 {
				e.Rep.Promise(fmt.Sprintf("at %v times what the core carries, goodput is at least %.0f %% of its peak", row.factor, minShare*100),
					row.Rate >= minShare*peak, row.Doubts, "%v of %v responses/s in time.", row.Rate, peak)
			}
			e.Rep.Promise(fmt.Sprintf("at %v times, p99 of served requests stays below the deadline", row.factor), late < 0.01,
				row.Doubts, "%s were late.", results.Percent(late))
			e.Rep.Promise(fmt.Sprintf("at %v times, less than 1 %% of the critical requests are refused", row.factor), critical < 0.01,
				row.Doubts, "%s were refused, of the normal ones %s.", results.Percent(critical), results.Percent(normal))
		}
	}
}

func peakOf(rows []sweepRow) (peak float64) {
	for _, row := range rows {
		peak = max(peak, row.Rate)
	}
	return peak
}

func sweepSetup(program string, refuses bool, up *rig.Route) rig.Setup {
	setup := rig.Setup{Program: program, OneCore: true}
	if program != "" {
		setup.Route = &rig.Route{Name: "all", Upstreams: []string{"http://" + up.Addr}, Compress: true, Overload: refuses, Mirrors: sweepLegs - 1}
		return setup
	}
	var ssps []string
	for i := range sweepLegs {
		name := fmt.Sprintf("s%d", i+1)
		ssps = append(ssps, name)
		setup.SSPs = append(setup.SSPs, &rig.SSP{Name: name, URLs: []string{"http://" + up.Addr + "/bid"}, Protocol: "http1",
			More: []string{"compress: {coding: gzip}"}})
	}
	asks := "mode: parallel-all, ssps: [" + strings.Join(ssps, ", ") + "]}"
	setup.Config = rig.Config{Deadline: sweepDeadline.String(), Server: []string{fmt.Sprintf("overload: {enabled: %v}", refuses)}, Routes: []string{
		"{name: critical, priority: critical, match: {path: /critical}, " + asks,
		"{name: normal, match: {path: /normal}, " + asks}}
	return setup
}

// bids are the bid requests of the sweep.
func bids() []load.Template {
	critical, normal := rig.Bid("critical", "/critical"), rig.Bid("normal", "/normal")
	critical.Body, normal.Body = sweepBody, sweepBody
	critical.Weight, normal.Weight = criticalShare, 1-criticalShare
	return []load.Template{critical, normal}
}

func sweepLength(e *rig.Rig) time.Duration { return e.Time(20*time.Second, 2*time.Second) }

// carries measures the rate that one core carries in a closed loop, with a setup that refuses nothing. In an open
// loop with thousands of connections the core carries less. So for adbuffer, the sweep replaces this rate by the peak
// of goodput in an open loop. Envoy has no such peak, since its goodput falls at lower rates.
func carries(e *rig.Rig, name string, setup rig.Setup) (rate float64) {
	e.Next("overload: what %s carries", name)
	s := e.Start(setup)
	defer s.Stop()
	for range 2 { // in the first run the proxy still opens connections
		rate = s.Measure(rig.Generate(rig.ClosedLoop(8, 0, sweepLength(e)/2, bids()...), true)).Rate
	}
	return rate
}

func sweepOne(e *rig.Rig, name string, setup rig.Setup, carried float64, factors []float64) (rows []sweepRow) {
	s := e.Start(setup)
	defer s.Stop()
	for _, factor := range factors {
		rate, length := factor*carried, sweepLength(e)
		conns := min(int(math.Ceil(rate*sweepTimeout.Seconds())), maxSweepConns)
		e.Next("overload: %s, %v × %.0f requests/s", name, factor, carried)
		plan := rig.OpenLoop(conns, rate, length/4, length, bids()...)
		plan.Poisson, plan.Deadline, plan.Timeout = true, sweepDeadline, sweepTimeout
		run := rig.Generate(plan, true)
		if setup.Program != "" { // another program may accept no connections for seconds
			run = run.Tolerate(func(f *rig.Figures, err error) { f.Doubts = []string{err.Error()} })
		}
		rows = append(rows, sweepRow{factor, s.Measure(run)})
		rig.Sleep(e.Ctx, settled) // the proxy still handles requests that clients have abandoned
	}
	return rows
}

// bursts is a program that takes a third of a core, in bursts of 20 ms.
const bursts = `while :; do end=$(($(date +%s%N) + 20000000)); while [ $(date +%s%N) -lt $end ]; do :; done; sleep 0.04; done`

// neighbour loads 70 % of what is left of a core by a process that takes a third of the core in bursts, and scrapes
// adbuffer meanwhile.
func neighbour(e *rig.Rig) {
	up := constantUpstream(e, kilobyte)
	setup := beforeUpstream(up)
	setup.Config.Server = append(setup.Config.Server, "overload: {enabled: true}")
	s := e.Start(setup)
	defer s.Stop()
	carried := s.Measure(rig.Generate(rig.ClosedLoop(32, 0, e.Time(5*time.Second, time.Second), small), true))
	noise := e.StartProcess(rig.Command{Name: "neighbour", Argv: []string{"sh", "-c", bursts}, Cores: e.ProxyCores})
	defer noise.Stop()
	e.Next("overload: a noisy neighbour")
	plan := rig.OpenLoop(256, 0.7*carried.Rate*2/3, time.Second, e.Time(10*time.Minute, 3*time.Second), small)
	plan.Poisson = true
	f := s.Beside(rig.Generate(plan, true), func(ctx context.Context) {
		for ; ctx.Err() == nil; rig.Sleep(ctx, 5*time.Second) {
			rig.Must(s.Adbuffer.Ask("/metrics"))(e)
		}
	})
	e.Rep.Table("70 % of the core that a neighbour leaves, which takes a third of it in bursts; a scrape every 5 s",
		"offered", "refused", "failed otherwise", "p99 ms").
		Add(f.Doubts, f.Offered, f.Statuses[503], f.Failed-min(f.Failed, f.Statuses[503]), f.Latency.P99)
	e.Rep.Promise("beside a noisy neighbour nothing is refused", f.Failed == 0, f.Doubts, "%s of %v.", f.Failures(), f.Offered)
}

// coldClients is how many clients connect at once.
const coldClients = 10_000

// coldCore lets many clients connect at once to an adbuffer on one core that has no connection yet.
func coldCore(e *rig.Rig) {
	n := e.Count(coldClients, 500)
	e.Next("overload: %d clients at once", n)
	s := e.Start(rig.Setup{OneCore: true, Config: rig.Config{Deadline: "30s"},
		SSPs: []*rig.SSP{{Name: "ssp", Protocol: "http1", Behaviour: steady(5 * time.Millisecond),
			Pool: "max_pending: -1, pending_timeout: 30s"}}})
	defer s.Stop()
	f := s.Measure(rig.Generate(rig.ClosedLoop(n, n, 0, small), true))
	dials := s.Adbuffer.Metric("adbuffer_pool_dial_errors_total")
	ejected := s.Adbuffer.Metric("adbuffer_endpoint_ejections_total")
	e.Rep.Table(fmt.Sprintf("%d clients at once, one cold core", n), "answered", "failed", "p99 ms", "failed dials", "ejections").
		Add(f.Doubts, f.Answered, f.Kinds(), f.Latency.P99, dials, ejected)
	blamed := uint64(0)
	for kind, n := range f.Errors {
		if strings.Contains(kind, "connect_failed") || strings.Contains(kind, "breaker_open") {
			blamed += n
		}
	}
	e.Rep.Promise("clients that connect at once on a cold core make no dial fail, and no endpoint is blamed",
		blamed == 0 && dials == 0 && ejected == 0, nil, "%v failed dials, %v ejections, %v requests blamed on the SSP.",
		dials, ejected, blamed)
}
