package tests

import (
	"context"
	"fmt"
	"slices"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/stage"
)

// fairness attacks adbuffer as one client or one SSP can, and measures the requests of the other
// clients. Calm and attacked rounds take turns often enough for stable medians. No round is repeated
// because of its result, since that would select the good rounds.
func fairness(_ context.Context, e *stage.Env) (*stage.Test, error) {
	const (
		rate    = 400.0                  // requests a second of the other clients
		inForce = time.Second            // from an attack's start to the measurement
		warmUp  = 300 * time.Millisecond // of the other clients, before it starts
		warm    = rate / 10              // requests of the other clients, after which it starts
	)
	measured := e.Time(10*time.Second, 2*time.Second)
	rounds := 5
	if e.Scale < 0.5 {
		rounds = 3
	}
	t := &stage.Test{Kind: "fairness", Title: "One client or one SSP attacks", Question: "Does anything that one client or one SSP sends hurt other clients?", Rounds: rounds,
		Notes: []string{"Noise is by how much p99 differs between the calm rounds of one attack, as a share of the median. A verdict whose p99 rose by less than that is doubted."},
		Tables: []stage.Table{{Title: fmt.Sprintf("%.0f requests/s of other clients to other SSPs of %v; medians of %d rounds, calm and attacked in turn", rate, healthyLatency, rounds), Heads: []string{"attack", "what the attacker spends"},
			Columns: []stage.Column{{Head: "answered, calm", Value: "calm.answered / calm.offered", As: "%"}, {Head: "answered, attacked", Value: "attacked.answered / attacked.offered", As: "%"}, {Head: "p99 ms calm", Value: "calm.p99"}, {Head: "attacked", Value: "attacked.p99"},
				{Head: "ratio", Value: "attacked.p99 / calm.p99", As: "x"}, {Head: "noise of calm p99", Value: "calm.noise", As: "%"}, {Head: "adbuffer CPU µs/request calm", Value: "calm.cpu_us"}, {Head: "attacked", Value: "attacked.cpu_us"}, {Head: "adbuffer memory", Value: "attacked.rss", As: "MiB"}}}},
		Promises: []stage.Promise{
			{Each: true, Text: "at least 99.9 % of the other clients' requests succeed", If: "attacked.answered / attacked.offered >= 0.999", Words: "{attacked.answered / attacked.offered|%} of the other requests succeeded, {calm.answered / calm.offered|%} when calm ({attacked.failures} in the last round)."},
			{Each: true, Doubtful: true, Text: "the other clients' p99 stays within 10 %", If: "attacked.p99 / calm.p99 <= 1.10", Noise: "calm.noise", Words: "p99 went from {calm.p99} to {attacked.p99} ms, with {calm.noise|%} of noise."}},
	}
	for _, a := range attacks {
		templates := []load.Template{stage.Bid("fair1", "/fillbuffer/fair1"), stage.Bid("fair2", "/fillbuffer/fair2"), stage.Page("page", "/fillbuffer/fair1")}
		ssps := []*stage.SSP{{Name: "fair1", Behaviour: healthyBehaviour()}, {Name: "fair2", Speaks: sspsim.TLSHTTP2, Behaviour: healthyBehaviour(), Seed: 1}}
		if a.ssp != nil {
			url, err := a.serve()
			if err != nil {
				return nil, err
			}
			ssps = append(ssps, &stage.SSP{Name: attackersSSP, URLs: []string{url}, Protocol: "http1"})
		}
		if a.shared {
			templates = append(templates, stage.Page(attackersSSP, "/fillbuffer/"+attackersSSP))
		}
		drive := stage.Generate(poisson(stage.OpenLoop(128, rate, warmUp+inForce, measured, templates...), 200, 204), true)
		t.Trials = append(t.Trials, stage.Trial{Name: a.name, Cells: []any{a.name, a.cost}, SSPs: ssps,
			// A single client was reported to have filled this limit alone.
			Server: stage.Server{Config: stage.Config{Deadline: "400ms", Server: []string{"max_in_flight: 500"}, TLS: a.encrypted}},
			Steps:  []stage.Step{{Name: "calm", Before: rest, Load: drive}, {Name: "attacked", Load: drive, Before: a.during(warm, warmUp+inForce+measured)}},
			Derive: func(s *stage.Sample) { s.Values["calm.noise"] = s.Values["calm.p99"] }})
	}
	return t, nil
}

// rest waits for a bounded time until the requests of the last attack have ended. Otherwise they would
// add to the requests of the next round, and fill max_in_flight.
func rest(ctx context.Context, s *stage.Stage) (func() error, error) {
	busy := []string{"adbuffer_in_flight_requests", "adbuffer_client_connections", "adbuffer_pool_places_in_use"}
	for end := time.Now().Add(liarDeadline + 5*time.Second); time.Now().Before(end) && ctx.Err() == nil; stage.Sleep(ctx, 50*time.Millisecond) {
		var failed error
		if !slices.ContainsFunc(busy, func(name string) bool {
			v, err := s.Adbuffer.Metric(name)
			if err != nil {
				failed = err
			}
			return v > 0
		}) {
			return nil, failed
		}
	}
	return nil, ctx.Err()
}
