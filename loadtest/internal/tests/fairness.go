package tests

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

const (
	fairRate    = 400.0                  // requests a second of the other clients
	fairInForce = time.Second            // from an attack's start to the measurement
	fairWarmUp  = 300 * time.Millisecond // of the other clients, before the attack starts
	fairWarm    = fairRate / 10          // requests of the other clients, after which it starts
)

// fairness attacks adbuffer as one client or one SSP can, and measures the requests of the other
// clients. Calm and attacked rounds take turns often enough for stable medians. No round is repeated
// because of its result, since that would select the good rounds.
func fairness(e *rig.Rig) {
	rounds := 5
	if e.Scale < 0.5 {
		rounds = 3
	}
	r := e.Rep
	r.Note("Noise is by how much p99 differs between the calm rounds of one attack, as a share of the median. A " +
		"verdict whose p99 rose by less than that is doubted.")
	t := r.Table(fmt.Sprintf("%.0f requests/s of other clients to other SSPs of %v; medians of %d rounds, calm and "+
		"attacked in turn", fairRate, healthyLatency, rounds),
		"attack", "what the attacker spends", "answered, calm", "answered, attacked", "p99 ms calm", "attacked",
		"ratio", "noise of calm p99",
		"adbuffer CPU µs/request calm", "attacked", "adbuffer memory")
	for _, a := range attacks {
		row := attackInTurn(e, a, rounds)
		calm, attacked := succeeded(row.calm), succeeded(row.disturbed)
		before, after := row.calm.values(p99), row.disturbed.median(p99)
		rise, noise := after/rig.Median(before), (slices.Max(before)-slices.Min(before))/rig.Median(before)
		memory := slices.Max(row.disturbed.values(func(f *rig.Figures) float64 { return float64(f.RSS) }))
		t.Add(row.doubts(), a.name, a.cost, results.Percent(calm), results.Percent(attacked), rig.Median(before), after,
			results.Ratio(rise), results.Percent(noise), row.calm.median(cpuUs), row.disturbed.median(cpuUs),
			results.MiB(int64(memory)))
		r.Promise(a.name+": at least 99.9 % of the other clients' requests succeed", attacked >= 0.999, nil,
			"%s of the other requests succeeded, %s when calm (%s in the last round).",
			results.Percent(attacked), results.Percent(calm), row.disturbed[rounds-1].Failures())
		doubts := row.doubts()
		if rise-1 < noise {
			doubts = append(doubts, "the calm rounds differ by more than the rise")
		}
		r.Promise(a.name+": the other clients' p99 stays within 10 %", rise <= 1.10, doubts,
			"p99 went from %v to %v ms, with %s of noise.", rig.Median(before), after, results.Percent(noise))
	}
}

func succeeded(rounds rounds) float64 {
	sum := rounds.counts()
	return share(sum.Answered, sum.Offered)
}

func attackInTurn(e *rig.Rig, a *attack, rounds int) turns {
	templates := []load.Template{rig.Bid("fair1", "/fillbuffer/fair1"), rig.Bid("fair2", "/fillbuffer/fair2"),
		rig.Page("page", "/fillbuffer/fair1")}
	ssps := []*rig.SSP{{Name: "fair1", Behaviour: healthyBehaviour()},
		{Name: "fair2", Speaks: sspsim.TLSHTTP2, Behaviour: healthyBehaviour(), Seed: 1}}
	if a.ssp != nil {
		server := httptest.NewServer(a.ssp)
		defer server.Close()
		ssps = append(ssps, &rig.SSP{Name: attackersSSP, URLs: []string{server.URL + "/bid"}, Protocol: "http1"})
	}
	if a.shared {
		templates = append(templates, rig.Page(attackersSSP, "/fillbuffer/"+attackersSSP))
	}
	// A single client was reported to have filled this limit alone.
	s := e.Start(rig.Setup{SSPs: ssps,
		Config: rig.Config{Deadline: "400ms", Server: []string{"max_in_flight: 500"}, TLS: a.encrypted}})
	defer s.Stop()
	measured := e.Time(10*time.Second, 2*time.Second)
	loaded := rig.Generate(poisson(rig.OpenLoop(128, fairRate, fairWarmUp+fairInForce, measured, templates...), 200,
		204), true)
	calm := func() *rig.Figures {
		awaitRest(e, s)
		return s.Measure(loaded)
	}
	attacked := func() *rig.Figures {
		return s.Beside(loaded, func(ctx context.Context) {
			a.after(ctx, s, fairWarm, fairWarmUp+fairInForce+measured)
		})
	}
	return inTurn(e, rounds, "fairness: "+a.name, calm, attacked)
}

// awaitRest waits for a bounded time until the requests of the last attack have ended. Otherwise they
// would add to the requests of the next round, and fill max_in_flight.
func awaitRest(e *rig.Rig, s *rig.Stage) {
	busy := []string{"adbuffer_in_flight_requests", "adbuffer_client_connections", "adbuffer_pool_places_in_use"}
	for end := time.Now().Add(liarDeadline + 5*time.Second); time.Now().Before(end); rig.Sleep(e.Ctx, 50*time.Millisecond) {
		e.Check(e.Ctx.Err())
		inUse := 0.0
		for _, name := range busy {
			inUse += s.Adbuffer.Metric(name)
		}
		if inUse == 0 {
			return
		}
	}
}
