package reports

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/engine"
)

// How fairness is measured: without and with an attack in turn, so often that
// the medians stand for something. The healthy SSPs take a constant time, which
// shows what adbuffer adds.
const (
	fairRate     = 400.0 // requests a second of the other clients
	leastSuccess = 0.999
	quickRounds  = 3
	fullRounds   = 5
	inForce      = time.Second            // from an attack's start to the measurement
	warmUp       = 300 * time.Millisecond // of the other clients, before it starts
)

// Fairness attacks adbuffer with what one client or one SSP can do, and measures what all other
// clients get.
func Fairness(ctx context.Context, e *engine.Env) (*results.Report, error) {
	r := e.Report("fairness", "One client or one SSP attacks",
		"Does anything that one client or one SSP sends hurt the others?")
	f := &fairness{Env: e, report: r, rounds: fullRounds}
	if e.Scale < 0.5 {
		f.rounds = quickRounds
	}
	f.table = results.Table{Title: fmt.Sprintf("%.0f requests/s of other clients to other SSPs of %v; medians of %d rounds, calm and attacked in turn", fairRate, healthyLatency, f.rounds),
		Columns: []string{"attack", "what the attacker spends", "answered, calm", "answered, attacked", "p99 ms calm", "attacked", "ratio", "noise of calm p99", "adbuffer CPU µs/request calm", "attacked", "adbuffer MiB"}}
	for _, a := range attacks {
		if err := f.suffer(ctx, a); err != nil {
			return nil, fmt.Errorf("%s: %w", a.name, err)
		}
		e.Rig.StopAll()
	}
	r.Tables = []results.Table{f.table}
	r.Notes = []string{"Noise is by how much p99 differs between the calm rounds of one attack, as a share of the median. A verdict whose p99 rose by less than that is doubted."}
	return e.Done(r), nil
}

type fairness struct {
	*engine.Env
	report *results.Report
	rounds int
	table  results.Table
}

// target is an adbuffer in front of two healthy SSPs and the attacker's.
type target struct {
	proxy *rig.Adbuffer
	ca    *sspsim.CA // of its own certificate; nil without TLS
}

// startTarget starts a target for an attack.
func (f *fairness) startTarget(ctx context.Context, a *attack) (*target, error) {
	t := new(target)
	// As in the report of a client that filled it alone.
	config := engine.Config{Deadline: "400ms", Server: []string{"max_in_flight: 500"}}
	if a.encrypted {
		file := func(name string) string { return filepath.Join(f.Rig.Dir, "fairness-"+name+".pem") }
		var err error
		if t.ca, err = sspsim.NewCA(); err != nil {
			return nil, err
		}
		cert, err := t.ca.ServerCert("127.0.0.1")
		if err != nil {
			return nil, err
		}
		if err := sspsim.WriteKeyPair(cert, file("cert"), file("key")); err != nil {
			return nil, err
		}
		config.Server = append(config.Server, fmt.Sprintf("tls: {cert_file: %q, key_file: %q}", file("cert"), file("key")))
	}
	for i, protocol := range []sspsim.Protocol{sspsim.HTTP1, sspsim.TLSHTTP2} {
		s, err := f.Rig.StartSSP(rig.SSPOptions{Name: fmt.Sprintf("fair%d", i+1), Protocol: protocol, Behaviour: healthyBehaviour(), Seed: uint64(i), Cores: f.LoadCores})
		if err != nil {
			return nil, err
		}
		config.SSPs = append(config.SSPs, engine.SSPConfig{Name: s.Name, URL: s.URL, CAFile: s.CAFile})
	}
	if a.sspURL != "" {
		config.SSPs = append(config.SSPs, engine.SSPConfig{Name: attackersSSP, URL: a.sspURL, Protocol: "http1"})
	}
	var err error
	t.proxy, err = f.Rig.StartAdbuffer(ctx, f.Adbuffer, config.YAML(), f.ProxyCores)
	return t, err
}

// rest waits for a bounded time until the last attack's requests have ended. Otherwise they would
// add to those of the next round, and fill max_in_flight.
func (t *target) rest(ctx context.Context) error {
	for end := time.Now().Add(liarDeadline + 5*time.Second); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		left := 0.0
		for _, name := range []string{"adbuffer_in_flight_requests", "adbuffer_client_connections", "adbuffer_pool_places_in_use"} {
			v, err := t.proxy.Metric(name)
			if err != nil {
				return err
			}
			left += v
		}
		if left == 0 {
			break
		}
	}
	return ctx.Err()
}

// suffer measures without and with an attack, in turn.
func (f *fairness) suffer(ctx context.Context, a *attack) error {
	f.Say("fairness: %s", a.name)
	stopSSP, err := a.startSSP()
	if err != nil {
		return err
	}
	defer stopSSP()
	t, err := f.startTarget(ctx, a)
	if err != nil {
		return err
	}
	templates := []load.Template{bid("fair1", "/fillbuffer/fair1"), bid("fair2", "/fillbuffer/fair2"), page("fair1", "/fillbuffer/fair1")}
	if a.othersAsk {
		templates = append(templates, page(attackersSSP, "/fillbuffer/"+attackersSSP))
	}
	plan := engine.OpenLoop(t.proxy.Addr, 128, fairRate, warmUp+inForce, f.Time(10*time.Second, 2*time.Second), templates...)
	plan.Poisson, plan.Statuses, plan.Echo = true, []int{200, 204}, true
	if t.ca != nil {
		plan.Authority = t.ca.PEM()
	}
	var calm, attacked []engine.Measured
	for range f.rounds {
		if err := t.rest(ctx); err != nil {
			return err
		}
		// No round is repeated for its result: that would choose the good ones.
		m, err := f.Generate(ctx, plan, t.proxy.PID)
		if err != nil {
			return err
		}
		calm = append(calm, m)
		attacking, stop := context.WithCancel(ctx)
		attackers := make(chan func(), 1)
		time.AfterFunc(warmUp, func() { attackers <- a.start(attacking, t) })
		m, err = f.Generate(ctx, plan, t.proxy.PID)
		stop()
		(<-attackers)()
		if err != nil {
			return err
		}
		attacked = append(attacked, m)
	}
	f.judge(a, calm, attacked)
	return nil
}

// felt is what the other clients got: the share of their requests that
// succeeded, and medians of the rounds.
type felt struct {
	success  float64
	p99, cpu float64
	noise    float64 // of p99, between rounds
	rss      int64   // the most
}

func feltOver(all []engine.Measured) (f felt) {
	var p99s, cpus []float64
	var answered, offered uint64
	for _, m := range all {
		p99s, cpus = append(p99s, m.Whole.Latency.P99), append(cpus, m.PerRequest())
		answered, offered = answered+m.Whole.Answered, offered+m.Whole.Offered
		f.rss = max(f.rss, m.After.RSS)
	}
	slices.Sort(p99s)
	slices.Sort(cpus)
	f.p99, f.cpu = p99s[len(p99s)/2], cpus[len(cpus)/2]
	f.noise = (p99s[len(p99s)-1] - p99s[0]) / f.p99
	f.success = float64(answered) / float64(max(1, offered))
	return f
}

func (f *fairness) judge(a *attack, calm, attacked []engine.Measured) {
	before, during := feltOver(calm), feltOver(attacked)
	var doubts []string
	for _, m := range slices.Concat(calm, attacked) {
		doubts = append(doubts, engine.GeneratorDoubts(m.Result)...)
	}
	slices.Sort(doubts)
	doubts = slices.Compact(doubts)
	f.report.Doubt(a.name, doubts)
	ratio := during.p99 / before.p99
	share := func(v float64) string { return fmt.Sprintf("%.2f %%", 100*v) }
	f.table.Add(doubts, a.name, a.cost, share(before.success), share(during.success), before.p99, during.p99, fmt.Sprintf("%.3f", ratio), share(before.noise),
		before.cpu, during.cpu, results.MiB(during.rss))
	words := fmt.Sprintf("%s of the other requests succeeded, %s when calm; p99 went from %.1f to %.1f ms, with %s of noise.", share(during.success), share(before.success), before.p99, during.p99, share(before.noise))
	if during.success < leastSuccess {
		words += fmt.Sprintf(" %s.", failures(attacked[len(attacked)-1].Whole))
	}
	fewer, slower := during.success < leastSuccess, ratio > mostRise
	f.report.Verdicts = append(f.report.Verdicts, results.Verdict{
		Promise: fmt.Sprintf("%s: at least 99.9 %% of the others' requests succeed, and their p99 stays within 10 %%", a.name),
		Held:    !fewer && !slower, Words: words,
		// A machine that fails requests by itself, or whose p99 varies as much,
		// shows nothing.
		Doubted: (!fewer || before.success < leastSuccess) && (!slower || len(doubts) > 0 || ratio-1 < before.noise)})
}
