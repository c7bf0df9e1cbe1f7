package capacity

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// twelveReplicas is an SSP at 20,000 requests/s with p50 80 ms and p99 250 ms.
func twelveReplicas() PlanInput {
	in := DefaultPlanInput()
	in.Rate, in.P50, in.P99, in.Replicas = 20000, 80*time.Millisecond, 250*time.Millisecond, 12
	return in
}

func mustPlan(t *testing.T, in PlanInput) PlanResult {
	t.Helper()
	r, err := Plan(in)
	testsupport.MustTrue(t, err == nil, "Plan(%+v): %v", in, err)
	return r
}

func TestPlanOfTwelveReplicasAt20000PerSecond(t *testing.T) {
	r := mustPlan(t, twelveReplicas())
	near(t, "rate of a replica", r.Rate, 1666.6667, 0.0001)
	near(t, "mean hold, ms", r.MeanHold.Seconds()*1e3, 90.198, 0.001)
	near(t, "L", r.Load, 150.33, 0.005)
	testsupport.Equal(t, math.Round(r.Load), 150, "L rounds to %v")

	// Exact Erlang C for 150.33 erlangs: with 175 places 3.11 % wait, a little more than the
	// allowed 3 %; with 176 places 2.57 %.
	testsupport.Equal(t, r.Places, 176, "N = %d")
	near(t, "share that waits for 175", erlangC(175, r.Load), 0.0311, 0.00005)
	near(t, "share that waits for 176", r.WaitingShare, 0.0257, 0.00005)
	near(t, "saturation", r.Saturation, 150.33/176, 0.0001)
	testsupport.Equal(t, r.SlowHold, 200*time.Millisecond, "slow hold = %v")
	near(t, "full at 200 ms", r.SlowFullRate, 880, 1e-9)
	near(t, "full at the mean hold", r.FullRate, 176/0.090198449, 0.001)

	// The rule of thumb, unrounded: 150.33 + 2·√150.33 = 174.85 places, which are full at
	// 874.26 requests/s of 200 ms.
	near(t, "L + 2√L", r.RulePlaces, 174.85, 0.005)
	testsupport.Equal(t, math.Ceil(r.RulePlaces), 175, "L + 2√L rounds up to %v")
	testsupport.Equal(t, math.Floor(r.RuleSlowFullRate), 874, "L + 2√L places are full at %v requests/s")

	testsupport.True(t, r.HTTP2Conns == 2 && r.HTTP2GrownConns == 4, "HTTP/2 connections = %d, %d with growth at half; want 2, 4", r.HTTP2Conns, r.HTTP2GrownConns)
	testsupport.True(t, len(r.Warnings) == 0, "warnings: %q", r.Warnings)
}

func TestPlanNamesEveryImpossibleNumberAtOnce(t *testing.T) {
	in := PlanInput{
		Rate: math.NaN(), P50: -time.Millisecond, P99: 2 * time.Hour, Replicas: 0,
		WaitingShare: 1, SlowHold: -1, Streams: 0, FileDescriptors: 0,
		PortsPerAddress: 65536, SourceAddresses: -2, SSPAddresses: 0, MaxAge: time.Millisecond,
	}
	r, err := Plan(in)
	testsupport.MustTrue(t, err != nil, "Plan accepted it")
	want := []string{
		"--rps NaN: must be between 0.001 and 1000000000 requests per second",
		"--replicas 0: must be between 1 and 1000000",
		"--p50 -1ms: must be above 0 and at most 1h0m0s",
		"--p99 2h0m0s: must be above 0 and at most 1h0m0s",
		"--waiting 1: must be above 0 and below 1, for example 0.03: no pool is so large that no request ever waits",
		"--slow -1ns: must be above 0 and at most 1h0m0s",
		"--streams 0: must be between 1 and 1000000000",
		"--file-descriptors 0: must be between 1 and 1000000000",
		"--ports 65536: must be between 1 and 65535",
		"--source-addresses -2: must be between 0 and 1000000000",
		"--local-addresses 0: must be between 1 and 1000000000",
		"--ssp-addresses 0: must be between 1 and 1000000000",
		"--max-age 1ms: must be 0 (no limit) or at least 1s",
	}
	got := err.Error()
	testsupport.True(t, got == strings.Join(want, "\n"), "errors:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	testsupport.True(t, r.Places == 0 && r.Warnings == nil, "a refused plan has results: %+v", r)
}

func TestPlanRefusesEachImpossibleNumberAlone(t *testing.T) {
	for _, c := range []struct {
		spoil func(*PlanInput)
		want  string
	}{
		{func(in *PlanInput) { in.Rate = 0 }, "--rps 0: must be between"},
		{func(in *PlanInput) { in.Rate = -20000 }, "--rps -20000: must be between"},
		{func(in *PlanInput) { in.Rate = math.Inf(1) }, "--rps +Inf: must be between"},
		{func(in *PlanInput) { in.Rate = 1e300 }, "--rps 1e+300: must be between"},
		{func(in *PlanInput) { in.P50 = 0 }, "--p50 0s: must be above 0"},
		{func(in *PlanInput) { in.P99 = 79 * time.Millisecond }, "--p99 79ms: must not be below p50, which is 80ms"},
		{func(in *PlanInput) { in.P50, in.P99 = time.Microsecond, 60*time.Millisecond }, "--p99 60ms: is too far above p50, which is 1µs"},
		{func(in *PlanInput) { in.Replicas = -1 }, "--replicas -1: must be between"},
		{func(in *PlanInput) { in.Rate = 1e9 }, "--replicas 12: are too few: each would have 7516537 requests in flight"},
		{func(in *PlanInput) { in.WaitingShare = 0 }, "--waiting 0: must be above 0"},
		{func(in *PlanInput) { in.WaitingShare = 3 }, "--waiting 3: must be above 0 and below 1"},
		{func(in *PlanInput) { in.WaitingShare = math.NaN() }, "--waiting NaN: must be above 0"},
	} {
		in := twelveReplicas()
		c.spoil(&in)
		_, err := Plan(in)
		testsupport.True(t, err != nil && strings.HasPrefix(err.Error(), c.want) && !strings.Contains(err.Error(), "\n"), "the error is %q, want one that starts with %q", err, c.want)
	}
}

func TestPlanAcceptsATailWhoseMeanStaysBelowIt(t *testing.T) {
	in := twelveReplicas()
	in.P50, in.P99 = time.Microsecond, 40*time.Millisecond
	r := mustPlan(t, in)
	testsupport.True(t, r.MeanHold < in.P99, "mean hold %v of p99 %v", r.MeanHold, in.P99)
}

func TestPlanCountsFileDescriptorsOfBothSides(t *testing.T) {
	in := twelveReplicas()
	in.FileDescriptors = 2*176 + 64
	r := mustPlan(t, in)
	if r.FileDescriptors != in.FileDescriptors || len(r.Warnings) != 0 {
		t.Errorf("needs %d, warns %q; want %d and no warning: exactly enough is enough", r.FileDescriptors, r.Warnings, in.FileDescriptors)
	}
	in.FileDescriptors--
	wantWarning(t, mustPlan(t, in), "file descriptors: 176 connections to the SSP and their clients need 416 of one process, whose limit is 415")
}

func TestPlanCountsPortsBetweenOnePairOfAddresses(t *testing.T) {
	in := twelveReplicas()
	in.Replicas, in.MaxAge = 1, 0
	in.FileDescriptors = 1 << 20
	in.Rate = 300000 // 27,060 erlangs: one HTTP/1 connection for each
	r := mustPlan(t, in)
	testsupport.True(t, r.PortsPerAddress == r.Places, "%d ports for %d connections that never age", r.PortsPerAddress, r.Places)
	testsupport.True(t, len(r.Warnings) == 0, "%d ports of 28232 are no reason to warn: %q", r.PortsPerAddress, r.Warnings)

	// A tenth more are in TIME_WAIT: 60 s of a life of 10 minutes.
	in.MaxAge = 10 * time.Minute
	r = mustPlan(t, in)
	want := int(math.Ceil(float64(r.Places) * 1.1))
	testsupport.True(t, r.PortsPerAddress == want, "%d ports, want %d", r.PortsPerAddress, want)
	wantWarning(t, r, fmt.Sprintf("ephemeral ports: %d are needed from one source address to one address of the SSP, 28232 exist", r.PortsPerAddress))

	in.SSPAddresses = 2
	r = mustPlan(t, in)
	testsupport.True(t, len(r.Warnings) == 0, "two addresses of the SSP have twice the ports: %q", r.Warnings)
}

func TestPlanSharesPortsAmongReplicasBehindOneAddress(t *testing.T) {
	in := twelveReplicas()
	in.MaxAge = 0
	for _, c := range []struct{ sources, replicasOnOne int }{{0, 1}, {12, 1}, {30, 1}, {6, 2}, {5, 3}, {1, 12}} {
		in.SourceAddresses = c.sources
		testsupport.Equal(t, mustPlan(t, in).PortsPerAddress, 176*c.replicasOnOne, "%[2]d source addresses for 12 replicas: %[1]d ports", c.sources)
	}
	in.SourceAddresses, in.PortsPerAddress = 1, 2000
	wantWarning(t, mustPlan(t, in), "ephemeral ports: 2112 are needed")
}

func wantWarning(t *testing.T, r PlanResult, prefix string) {
	t.Helper()
	testsupport.True(t, len(r.Warnings) == 1 && strings.HasPrefix(r.Warnings[0], prefix), "warnings = %q, want one that starts with %q", r.Warnings, prefix)
}

func TestPlanTakesASlowHoldAboveTheMeanByDefault(t *testing.T) {
	in := twelveReplicas()
	in.SlowHold = 500 * time.Millisecond
	near(t, "full at 500 ms", mustPlan(t, in).SlowFullRate, 352, 1e-9)

	in.SlowHold, in.P99 = 0, 8*time.Second // raises the mean above 2.5 × p50
	r := mustPlan(t, in)
	testsupport.True(t, r.SlowHold == 2*r.MeanHold && r.SlowHold > in.P50*5/2, "slow hold = %v, want twice the mean %v", r.SlowHold, r.MeanHold)

	in = twelveReplicas()
	in.SlowHold = 50 * time.Millisecond
	wantWarning(t, mustPlan(t, in), "slow-hold 50ms is below the mean hold 90.198")
}

// A replica with several local addresses needs fewer ports of each.
func TestPlanCountsThePortsOfEachLocalAddress(t *testing.T) {
	in := DefaultPlanInput()
	in.Rate, in.P50, in.P99, in.Replicas = 20000, 80*time.Millisecond, 250*time.Millisecond, 1
	one := mustPlan(t, in).PortsPerAddress
	in.LocalAddresses = 4
	testsupport.Between(t, mustPlan(t, in).PortsPerAddress, one/4, one/4+2, "%d ports of each of four addresses, %d of one", one)
	in.SourceAddresses = 1 // behind a NAT only the NAT's address counts
	testsupport.Equal(t, mustPlan(t, in).PortsPerAddress, one, "%d ports of a NAT's address")
}

// For any input, Plan returns an error or a plan whose numbers agree with each other.
func FuzzPlanRefusesOrAddsUp(f *testing.F) {
	f.Add(20000.0, int64(80*time.Millisecond), int64(250*time.Millisecond), 12, 0.03, int64(0), 100, 4096, 28232, 0, 1, int64(10*time.Minute))
	f.Add(0.001, int64(1), int64(1), 1_000_000, 0.999, int64(1), 1, 1, 1, 1, 1, int64(time.Second))
	f.Add(1e9, int64(time.Hour), int64(time.Hour), 1_000_000, 1e-300, int64(time.Hour), 1, 1, 65535, 1, 1, int64(0))
	f.Add(5.5e6, int64(90*time.Millisecond), int64(90*time.Millisecond), 1, 5e-324, int64(0), 1, 1, 65535, 1, 1, int64(1e18))
	f.Add(math.NaN(), int64(-1), int64(math.MinInt64), -5, math.Inf(1), int64(-1), 0, 0, 0, -1, 0, int64(-1))
	f.Fuzz(func(t *testing.T, rate float64, p50, p99 int64, replicas int, share float64, slow int64,
		streams, descriptors, ports, sources, addresses int, maxAge int64) {
		in := PlanInput{
			Rate: rate, P50: time.Duration(p50), P99: time.Duration(p99), Replicas: replicas,
			WaitingShare: share, SlowHold: time.Duration(slow), Streams: streams,
			FileDescriptors: descriptors, PortsPerAddress: ports,
			SourceAddresses: sources, LocalAddresses: 1, SSPAddresses: addresses, MaxAge: time.Duration(maxAge),
		}
		r, err := Plan(in)
		if err != nil {
			return
		}
		if !(r.Load > 0 && float64(r.Places) > r.Load && r.Places < maxPlaces && r.WaitingShare <= share) {
			t.Fatalf("load %v, places %d, share %v of %v", r.Load, r.Places, r.WaitingShare, share)
		}
		if r.FileDescriptors <= r.Places || r.PortsPerAddress < 1 ||
			r.MeanWait < 0 || r.SlowHold <= 0 || r.HTTP2GrownConns < r.HTTP2Conns || r.HTTP2Conns < 1 {
			t.Fatalf("sums that do not add up: %+v", r)
		}
		for _, v := range []float64{r.Rate, r.FullRate, r.SlowFullRate, r.RulePlaces, r.RuleSlowFullRate, r.Saturation} {
			testsupport.MustTrue(t, v > 0 && !math.IsInf(v, 1), "a figure that is no number: %+v", r)
		}
		testsupport.MustTrue(t, r.FullRate >= r.Rate, "a pool that its own rate fills: %v of %v", r.FullRate, r.Rate)
	})
}
