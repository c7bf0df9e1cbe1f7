package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"adbuffer/internal/operate/replay"
	"adbuffer/internal/test/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

func trafficCommand() Command {
	var only string
	var wantsChanges, beside bool
	return Command{Name: "traffic", Short: "What check --traffic says, beside what then happens",
		Question: "Does check --traffic say what a changed configuration then does, and do requests notice a dry run?",
		Long: `Sends 60 requests a second through three routes to five SSPs for three minutes. Then check
--traffic says what each of seven changed configurations would do. Each of them is then put in
force for two minutes: one table has the rates and the places that check --traffic said, beside
those that the metrics show. It takes 18 minutes.

With --beside, 5 000 requests a second go through one core, in turn without and with dry runs of
10 000 sampled requests of 2 KB, which repeat without a pause; it takes a minute.`,
		Test: func(e *rig.Rig) {
			if wantsChanges {
				changes(e, only)
			}
			if beside {
				besideDryRuns(e)
			}
		},
		Example: "  go run ./loadtest traffic\n  go run ./loadtest traffic --only weights\n  go run ./loadtest traffic --changes=false --beside",
		Flags: func(f *pflag.FlagSet) {
			f.BoolVar(&wantsChanges, "changes", true, "put the changed configurations in force")
			f.BoolVar(&beside, "beside", false, "measure the latency of requests beside dry runs")
			f.StringVar(&only, "only", "", "only the changes with this `text` in their names")
		},
	}
}

// trafficRate is low, and the SSPs' latencies are long: many places are in use, but little CPU, so that a busy machine
// changes the hold times little.
const trafficRate = 60.0

// trafficSSPs are the SSPs of the changes. Their latencies differ, so that it matters which one gets a request.
func trafficSSPs() (all []*rig.SSP) {
	for i, s := range []struct {
		name     string
		p50, p99 time.Duration
		noBid    float64
		more     string
	}{
		{"display", time.Second, 2500 * time.Millisecond, 0.5, "timeouts: {request: 5s}"},
		{"america", 600 * time.Millisecond, 1500 * time.Millisecond, 0.5, "remove: [{path: device.ifa}]"},
		{"video", 1500 * time.Millisecond, 3 * time.Second, 0.3, "no_bid_body: openrtb"},
		{"native", 1250 * time.Millisecond, 3 * time.Second, 0.6, "compress: {coding: gzip}"},
		{"backup", 750 * time.Millisecond, 2 * time.Second, 0.5, "protocol: http1"},
	} {
		b := sspsim.Behaviour{Latency: sspsim.Lognormal(s.p50, s.p99), Response: sspsim.Response{NoBid: sspsim.Share(s.noBid)}}
		all = append(all, &rig.SSP{Name: s.name, Behaviour: b, Seed: uint64(i + 1), Pool: limits(300, 100, "500ms"), More: []string{s.more, "breaker: {enabled: false}"}})
	}
	return all
}

var trafficRoutes = []string{
	"{name: auction, match: {path: /auction}, mode: parallel-all, ssps: [display, {name: america, when: [{path: device.geo.country, in: [USA]}]}]}",
	"{name: split, match: {path: /split}, mode: split, ssps: [{name: display, weight: 1}, {name: video, weight: 3}]}",
	"{name: fall, match: {path: /fall}, mode: waterfall, ssps: [native, backup], on_error: no_ad}",
}

// trafficChange is a change of a configuration: pairs of a text and what replaces it.
type trafficChange struct {
	name     string
	replaced []string
}

func trafficChanges() []trafficChange {
	return []trafficChange{
		{"a route goes to another SSP", []string{"mode: waterfall, ssps: [native, backup]", "ssps: [video]"}},
		{"an SSP more in a parallel route", []string{"ssps: [display, {name: america", "ssps: [display, backup, {name: america"}},
		{"other weights", []string{"weight: 1}", "weight: 9}"}},
		{"a wider condition", []string{"in: [USA]", "in: [USA, DEU]"}},
		{"another order of a waterfall", []string{"[native, backup]", "[backup, native]"}},
		{"a shorter timeout", []string{"{request: 5s}", "{request: 1200ms}"}},
		{"the first ad instead of all", []string{"parallel-all", "parallel-first"}},
	}
}

// trafficRequests are 60 % bid requests, half of them from the USA, 30 % GETs of a split and 10 % of a waterfall.
func trafficRequests() []load.Template {
	bid := func(country string) load.Template {
		return load.Template{Name: country, Weight: 30, Method: "POST", Path: "/auction", Headers: []load.Field{{Name: "Content-Type", Value: "application/json"}},
			Literal: fmt.Sprintf(`{"id":"{n}","imp":[{"id":"1","banner":{"w":300}}],"device":{"ifa":"a-b","geo":{"country":%q}},"ext":{"pad":%q}}`, country, strings.Repeat("x", 1000))}
	}
	split, fall := rig.Get("/split?cb="+load.Number), rig.Get("/fall?cb="+load.Number)
	split.Weight, fall.Weight = 30, 10
	return []load.Template{bid("USA"), bid("DEU"), split, fall}
}

// use is what a pool did: requests a second, the mean places in use, and most of them that a scrape saw.
type use struct{ rate, load, peak float64 }

// changes asks check --traffic about each change, and then puts it in force.
func changes(e *rig.Rig, only string) {
	const settle = 10 * time.Second // longer than a request takes
	sampled, length := e.Time(3*time.Minute, 20*time.Second), e.Time(2*time.Minute, 20*time.Second)
	config := rig.Config{Deadline: "8s", Admin: "sample: {requests: 10000, max_age: 5m}", Routes: trafficRoutes}
	ssps := trafficSSPs()
	proxy, rest := e.ProxyCores, e.LoadCores
	e.ProxyCores, e.LoadCores = "", "" // a busy core would make the SSPs slower
	defer func() { e.ProxyCores, e.LoadCores = proxy, rest }()
	s := e.Start(rig.Setup{SSPs: ssps, Config: config})
	defer s.Stop()
	config.SSPs = ssps
	before := rig.Must(config.YAML())(e)
	t := e.Rep.Table(fmt.Sprintf("Of %v/s; places in use by Little's law, in the busiest minute", trafficRate),
		"change", "SSP", "said/s", "95 %", "then/s", "said needs", "95 %", "then in use", "said / then", "at most in use")
	plan := rig.OpenLoop(1000, trafficRate, 0, sampled, trafficRequests()...)
	plan.Timeout = 20 * time.Second
	plan.Phases[0].Duration += 2 * settle
	all := slices.DeleteFunc(trafficChanges(), func(c trafficChange) bool { return !strings.Contains(c.name, only) })
	plan.Phases[0].Duration += time.Duration(len(all)) * (length + 3*settle)
	said, uses, texts := make([]*replay.Report, len(all)), make([]map[string]*use, len(all)), make([]string, len(all))
	f := s.Beside(rig.Generate(plan, true), func(ctx context.Context) {
		e.Next("traffic: the sample, %v", sampled)
		rig.Sleep(ctx, sampled+settle)
		for i, change := range all {
			texts[i] = strings.NewReplacer(change.replaced...).Replace(before)
			said[i] = rig.Must(checkTraffic(ctx, s, e.Write("changed-*.yaml", texts[i])))(e)
		}
		for i, change := range all {
			e.Next("traffic: %s, %v", change.name, length)
			e.Check(os.WriteFile(s.Adbuffer.File, []byte(texts[i]), 0o600))
			if out, err := exec.CommandContext(ctx, e.Adbuffer, "reload", "--admin", "http://"+s.Adbuffer.Admin).CombinedOutput(); err != nil {
				e.Check(fmt.Errorf("adbuffer reload: %w: %s", err, out))
			}
			rig.Sleep(ctx, settle)
			uses[i] = usesOf(ctx, s, length)
		}
	})
	for i, change := range all {
		judgeChange(e.Rep, t, f.Doubts, change.name, said[i], uses[i])
	}
	e.Rep.Note("%s.", f.Failures())
}

// judgeChange adds a row for each SSP, and judges the places that check --traffic said.
func judgeChange(r *results.Report, t *results.Table, doubts []string, change string, said *replay.Report, uses map[string]*use) {
	var wrong []string
	for _, s := range said.SSPs {
		u := uses[s.SSP]
		if u == nil || u.load == 0 || s.Pool == nil {
			t.Add(doubts, change, s.SSP, s.Then, "–", "–", "–", "–", "–", "–", "–")
			continue
		}
		needs := float64(s.Pool.Needs)
		t.Add(doubts, change, s.SSP, s.Then, results.Percent(s.Margin/s.Then), u.rate, needs, results.Percent(s.PoolMargin), u.load, math.Round(100*needs/u.load)/100, u.peak)
		if needs < 0.9*u.load || needs > 1.1*u.load+1 {
			wrong = append(wrong, fmt.Sprintf("%s %v instead of %s", s.SSP, needs, results.Number(u.load)))
		}
	}
	words := "all are."
	if len(wrong) > 0 {
		words = strings.Join(wrong, ", ") + "."
	}
	r.Promise(change+": the needed places are those in use, within 10 % and rounded up", len(wrong) == 0, doubts, "%v", words)
}

// checkTraffic runs check --traffic with a file.
func checkTraffic(ctx context.Context, s *rig.Stage, file string) (*replay.Report, error) {
	cmd := exec.CommandContext(ctx, s.Rig.Adbuffer, "check", file, "--admin", "http://"+s.Adbuffer.Admin, "--traffic", "--json")
	out, err := cmd.Output() // the exit status is 1 if a pool would be full
	var check replay.Check
	if failed := json.Unmarshal(out, &check); failed != nil || check.Traffic == nil || check.Traffic.Requests == 0 {
		return nil, fmt.Errorf("check --traffic: %w: %s", errors.Join(err, failed), out)
	}
	return check.Traffic, nil
}

// usesOf watches the pools for length, and returns the busiest minute of each.
func usesOf(ctx context.Context, s *rig.Stage, length time.Duration) map[string]*use {
	busiest, peaks := make(map[string]*use), make(map[string]float64)
	var from time.Time
	var sums map[string]use
	for end := time.Now().Add(length); ctx.Err() == nil; rig.Sleep(ctx, time.Second) {
		at := time.Now()
		now, err := poolsOf(s, peaks)
		seconds := at.Sub(from).Seconds()
		switch {
		case err != nil: // a busy machine scrapes late
			continue
		case sums == nil:
			from, sums = at, now
			continue
		case seconds < min(time.Minute, length).Seconds():
			continue
		}
		for ssp, v := range now {
			u := use{rate: (v.rate - sums[ssp].rate) / seconds, load: (v.load - sums[ssp].load) / seconds}
			if busiest[ssp] == nil || u.load > busiest[ssp].load {
				busiest[ssp] = &u
			}
		}
		from, sums = at, now
		if !at.Before(end) {
			break
		}
	}
	for ssp, u := range busiest {
		u.peak = peaks[ssp]
	}
	return busiest
}

// poolsOf returns the counters of the pools: how many places were released, and for how many seconds they were held. It
// raises peaks to the places in use.
func poolsOf(s *rig.Stage, peaks map[string]float64) (map[string]use, error) {
	pools := make(map[string]use)
	err := s.Adbuffer.Series(func(name, labels string, v float64) {
		_, ssp, _ := strings.Cut(labels, `ssp="`)
		ssp, _, _ = strings.Cut(ssp, `"`)
		u := pools[ssp]
		switch name {
		case "adbuffer_pool_hold_seconds_count":
			u.rate = v
		case "adbuffer_pool_hold_seconds_sum":
			u.load = v
		case "adbuffer_pool_places_in_use":
			peaks[ssp] = max(peaks[ssp], v)
			return
		default:
			return
		}
		pools[ssp] = u
	})
	return pools, err
}

// postDryRun does what checkTraffic does, without a process that would take CPU from the load generator.
func postDryRun(ctx context.Context, s *rig.Stage, document string) (*replay.Report, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Adbuffer.Admin+"/reload?dry_run=1&traffic=1", strings.NewReader(document))
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var check replay.Check
	if err := json.NewDecoder(resp.Body).Decode(&check); err != nil || check.Traffic == nil {
		return nil, fmt.Errorf("a dry run: %s, %w", resp.Status, err)
	}
	return check.Traffic, nil
}

// besideDryRuns sends requests through one core, in turn without and with dry runs.
func besideDryRuns(e *rig.Rig) {
	const rate, rounds, pause = 5000.0, 3, 2 * time.Second
	length := e.Time(7*time.Second, 2*time.Second)
	config := rig.Config{Admin: "sample: {requests: 50000, max_age: 5m, max_bytes: 536870912}", Routes: []string{ // 10 000 requests of the first minute
		"{name: bids, match: {path: /auction}, ssps: [{name: ssp, when: [{path: device.geo.country, in: [USA]}]}]}"}}
	ssps := []*rig.SSP{{Name: "ssp", Behaviour: steady(5 * time.Millisecond), Pool: "max_conns: 500", More: []string{"remove: [{path: device.ifa}]"}}}
	s := e.Start(rig.Setup{SSPs: ssps, Config: config, OneCore: true})
	defer s.Stop()
	config.SSPs = ssps
	changed := strings.Replace(rig.Must(config.YAML())(e), "in: [USA]", "in: [DEU]", 1)
	bid := trafficRequests()[0]
	bid.Literal = strings.Replace(bid.Literal, strings.Repeat("x", 1000), strings.Repeat("x", 1850), 1)
	plan := rig.OpenLoop(500, rate, 3*time.Second, 0, bid)
	plan.Poisson, plan.Phases = true, plan.Phases[:1]
	for i := range rounds {
		for _, name := range []string{"alone", "beside"} {
			plan.Phases = append(plan.Phases, load.Phase{Name: fmt.Sprint(name, i), Duration: length, From: rate, To: rate},
				load.Phase{Name: "pause", Duration: pause, From: rate, To: rate, Unrecorded: true})
		}
	}
	var runs, judged int
	var seconds float64
	f := s.Beside(rig.Generate(plan, false), func(ctx context.Context) {
		rig.Sleep(ctx, 3*time.Second)
		for range rounds {
			rig.Sleep(ctx, length+pause)
			round, end := context.WithTimeout(ctx, length)
			for round.Err() == nil {
				begun := time.Now()
				if report, err := postDryRun(round, s, changed); round.Err() == nil {
					e.Check(err)
					runs, judged, seconds = runs+1, report.Requests, seconds+time.Since(begun).Seconds()
				}
			}
			end()
			rig.Sleep(ctx, pause)
		}
	})
	t := e.Rep.Table(fmt.Sprintf("%v requests/s on one core, in turn without and with dry runs of %v sampled requests", rate, judged), "round", "p50 ms", "p99 ms", "p50 ms beside dry runs", "p99 ms beside dry runs")
	var alone, beside []float64
	for i := range rounds {
		a, b := f.Phase(fmt.Sprint("alone", i)).Latency, f.Phase(fmt.Sprint("beside", i)).Latency
		alone, beside = append(alone, a.P99), append(beside, b.P99)
		t.Add(f.Doubts, i+1, a.P50, a.P99, b.P50, b.P99)
	}
	e.Rep.Note("%d dry runs took %s s each. %s.", runs, results.Number(seconds/float64(max(runs, 1))), f.Failures())
	e.Rep.Promise("p99 beside dry runs of 10 000 requests is at most 2 ms higher (medians of the rounds)", judged >= 10_000 && rig.Median(beside)-rig.Median(alone) <= 2, f.Doubts,
		"%v ms instead of %v ms.", rig.Median(beside), rig.Median(alone))
}
