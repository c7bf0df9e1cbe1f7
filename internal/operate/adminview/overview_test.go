package adminview

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/request/proxy"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/test/testsupport"
)

func TestTroublesOfAnSSP(t *testing.T) {
	up := pool.EndpointSnapshot{Endpoint: "a:1", State: "enabled", Active: true}
	ejected := pool.EndpointSnapshot{Endpoint: "b:1", State: "ejected", EjectedSeconds: 5, LastDialError: "connect_failed: b (b:1): no TCP connection: connect: connection refused"}
	failedResponses := pool.EndpointSnapshot{Endpoint: "b:1", State: "ejected", EjectedSeconds: 5, Requests: map[string]uint64{"fill": 9, "server_error": 5, "conn_lost": 1}}
	unreachable := pool.EndpointSnapshot{Endpoint: "c:1", State: "enabled", LastDialError: "tls_failed: c:1: tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time"}
	sick := pool.EndpointSnapshot{Endpoint: "d:1", State: "unhealthy", LastCheckError: "503"}
	drained := pool.EndpointSnapshot{Endpoint: "e:1", State: "draining"}
	disabled, drainedEjected := unreachable, ejected
	disabled.State, drainedEjected.State = "disabled", "draining"
	for _, test := range []struct {
		name      string
		pool      pool.Snapshot
		ssp       ssp.Snapshot
		minute    lastMinute
		urgency   urgency
		want      string
		endpoints []pool.EndpointSnapshot
	}{
		{name: "healthy", urgency: calm, endpoints: []pool.EndpointSnapshot{up}},
		{name: "one of three is ejected", urgency: degraded, endpoints: []pool.EndpointSnapshot{up, ejected, up}, want: "1 of 3 endpoints ejected: connection refused"},
		{name: "ejected for its responses", urgency: degraded, endpoints: []pool.EndpointSnapshot{up, failedResponses}, want: "1 of 2 endpoints ejected: most of its failures are server_error"},
		{name: "two causes", urgency: degraded, endpoints: []pool.EndpointSnapshot{up, sick, unreachable}, want: "1 of 3 endpoints unhealthy: 503; 1 of 3 endpoints unreachable: certificate has expired or is not yet valid"},
		{name: "none is left", urgency: down, endpoints: []pool.EndpointSnapshot{unreachable, unreachable}, want: "2 of 2 endpoints unreachable: certificate has expired or is not yet valid"},
		{name: "none is left, so all requests fail", urgency: down, endpoints: []pool.EndpointSnapshot{unreachable}, minute: lastMinute{Requests: 10, Failed: 10}, want: "1 of 1 endpoints unreachable"},
		{name: "an operator drains one", urgency: calm, endpoints: []pool.EndpointSnapshot{up, drained}, want: "endpoint e:1 is draining"},
		{name: "an operator has disabled one that was unreachable", urgency: calm, endpoints: []pool.EndpointSnapshot{up, disabled}, want: "endpoint c:1 is disabled"},
		{name: "an operator drains one that was ejected", urgency: calm, endpoints: []pool.EndpointSnapshot{up, drainedEjected}, want: "endpoint b:1 is draining"},
		{name: "by hand", urgency: byHand, pool: pool.Snapshot{State: "disabled"}, want: "an operator has set it to disabled"},
		{name: "few fail", urgency: calm, minute: lastMinute{Requests: 1000, Failed: 9}},
		{name: "most failed until 20 s ago", urgency: calm, minute: lastMinute{Requests: 1000, Failed: 600, over: true}},
		{name: "some fail", urgency: someFail, minute: lastMinute{Requests: 1000, Failed: 10, howFailed: "10 as deadline"}, want: "10 of 1,000 requests of the last minute failed: 10 as deadline"},
		{name: "most fail", urgency: failing, minute: lastMinute{Requests: 10, Failed: 5, howFailed: "5 as server_error"}, want: "5 of 10 requests"},
		{name: "the pool is full", urgency: poolFull, minute: lastMinute{Requests: 1_273_707, Failed: 1_269_576, noPlace: 1_253_243, bySSP: 1, howFailed: "1,253,243 as pending_full"}, want: "1,269,576 of 1,273,707 requests of the last minute failed: 1,253,243 as pending_full; its pool is full: see pool.max_conns"},
		{name: "the pool is full of requests that fail", urgency: failing, minute: lastMinute{Requests: 100, Failed: 95, noPlace: 90, bySSP: 5, howFailed: "90 as pending_full, 5 as deadline"}, want: "95 of 100 requests of the last minute failed: 90 as pending_full, 5 as deadline"},
		{name: "the pool is full of requests that fail, and the breaker sheds", urgency: failing, minute: lastMinute{Requests: 100, Failed: 100, noPlace: 60, bySSP: 10, howFailed: "60 as pending_full, 30 as breaker_open, 10 as deadline"}, want: "100 of 100 requests of the last minute failed: 60 as pending_full, 30 as breaker_open, 10 as deadline"},
		{name: "the pool is full at times", urgency: someFail, minute: lastMinute{Requests: 100, Failed: 9, noPlace: 8, bySSP: 1, howFailed: "8 as pending_full, 1 as deadline"}, want: "1 as deadline; its pool is full: see pool.max_conns"},
		{name: "by hand, and its requests fail", urgency: byHand, pool: pool.Snapshot{State: "draining"}, minute: lastMinute{Requests: 10, Failed: 10, byHand: 10}, want: "an operator has set it to draining"},
		{name: "requests wait", urgency: waits, pool: pool.Snapshot{Pending: 3, PlacesInUse: 6, PlacesLimit: 8}, want: "3 requests wait, and 6 of 8 places are in use"},
		{name: "requests wait for a full pool", urgency: waits, pool: pool.Snapshot{Pending: 3, PlacesInUse: 8, PlacesLimit: 8}, want: "all 8 places are in use, and 3 requests wait; see pool.max_conns and pool.max_pending"},
		{name: "the pool is full, and no request waits", urgency: calm, pool: pool.Snapshot{PlacesInUse: 8, PlacesLimit: 8}, want: "all 8 places are in use; see pool.max_conns"},
		{name: "Redis is away", urgency: calm, ssp: ssp.Snapshot{QPSAlone: 33.3333}, want: "Redis is away: adbuffer sends at most 33.333 requests a second"},
		{name: "at its limit", urgency: waits, ssp: ssp.Snapshot{ConcurrencyLimit: 5, InFlight: 5}, want: "5 of 5 requests to it are in flight"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.pool.Endpoints = test.endpoints
			if test.pool.State == "" {
				test.pool.State = "enabled"
			}
			all := troublesOf(&test.pool, &test.ssp, &test.minute)
			if test.urgency == calm && test.want == "" {
				testsupport.True(t, len(all) <= 0, "its troubles are %v", all)
				return
			}
			if len(all) != 1 || all[0].urgency != test.urgency || test.urgency == failing && strings.Contains(all[0].text, "its pool is full") || !strings.Contains(cmp.Or(all[0].text, strings.Join(all[0].each, "; ")), test.want) {
				t.Errorf("its troubles are %v, want %q (%d)", all, test.want, test.urgency)
			}
		})
	}
}

// Cancelled legs of parallel modes are not failures, of which healthy SSPs would otherwise show many.
func TestAMinuteCountsOnlyFailuresOfTheLastMinute(t *testing.T) {
	var m minute
	h := metrics.Durations(time.Millisecond, time.Second)
	for range minuteMarks*markEvery + 1 {
		m.look(h, counts{map[string]uint64{"server_error": 7, "filtered": 3, "shaped": 10}, 4, 100, 50})
	}
	h.ObserveDuration(time.Millisecond)
	now := map[string]uint64{"server_error": 8, "deadline": 2, "breaker_open": 90, "ssp_disabled": 200, "cancelled": 30, "client_gone": 4, "fill": 5, "too_large": 1, "filtered": 93, "shaped": 17}
	if got := m.last(h, counts{now, 6, 120, 57}); got.Filtered != 90 || got.Shaped != 7 || got.total() != 430 || got.Preflights != 7 || got.Masked != 2 || got.Failed != 293 || got.byHand != 200 || got.Fills != 25 || got.bySSP != 3 || got.howFailed != "90 as breaker_open, 2 as deadline" || got.Requests != 333 || got.Seconds < 60 || got.Seconds > 70 {
		t.Errorf("the last minute is %+v", got)
	}
}

func TestOutcomesOfFailuresAreNamedTheCommonestFirst(t *testing.T) {
	for _, test := range []struct {
		outcomes map[string]uint64
		want     string
	}{
		{map[string]uint64{"fill": 9, "ssp_disabled": 9}, ""},
		{map[string]uint64{"deadline": 1, "pending_full": 1_253_243, "pending_timeout": 16_332}, "1,253,243 as pending_full"},
		{map[string]uint64{"deadline": 10, "conn_lost": 9, "breaker_open": 900, "qps_limit": 50}, "900 as breaker_open, 10 as deadline"},
		{map[string]uint64{"server_error": 40, "deadline": 50, "qps_limit": 10}, "50 as deadline, 40 as server_error, 10 as qps_limit"},
	} {
		testsupport.Equal(t, howFailed(test.outcomes), test.want, "%[3]v failed as %[1]q", test.outcomes)
	}
}

// SSPs in trouble come first, those with the most failures before the others, and healthy ones by name.
func TestTheOrderOfSSPs(t *testing.T) {
	row := func(name string, u urgency, requests, failed, byHand uint64) sspRow {
		return sspRow{SSP: name, Urgency: int(u), LastMinute: lastMinute{Requests: requests, Failed: failed, byHand: byHand}, Saturation: float64(len(name))}
	}
	rows := []sspRow{
		row("disabled", byHand, 40, 40, 40), row("healthy", calm, 100, 0, 0), row("a-recovered", calm, 100, 99, 0), row("slow", failing, 100, 63, 0), row("a-slow", failing, 100, 62, 0),
		row("broken", failing, 100, 100, 0), row("a-idle", calm, 0, 0, 0), row("broken-too", failing, 1000, 999, 0), row("dead", down, 0, 0, 0),
	}
	slices.SortFunc(rows, worstFirst)
	names := ""
	for i := range rows {
		names += rows[i].SSP + " "
	}
	testsupport.Equal(t, names, "dead broken broken-too a-slow slow disabled a-idle a-recovered healthy ", "the order is %q")
}

// The failures end with look 49. 20 s later at most, an SSP with many requests has no trouble any more.
func TestFailuresOfTheMinuteAreOverOnceTheLastSecondsHaveNone(t *testing.T) {
	for _, test := range []struct {
		rate uint64 // requests a look
		over int    // the look at which the failures are over
	}{{80, 55}, {1, 0}} { // of one request a look, too few were to be expected to fail
		var m minute
		h, outcomes, over := metrics.Durations(time.Millisecond, time.Second), map[string]uint64{}, 0
		for i := range 90 {
			outcome := "fill"
			if i >= 40 && i < 50 {
				outcome = "deadline"
			}
			outcomes = map[string]uint64{"fill": outcomes["fill"], "deadline": outcomes["deadline"], "ssp_disabled": 9}
			outcomes[outcome] += test.rate
			m.look(h, counts{outcomes: outcomes})
			if last := m.last(h, counts{outcomes: outcomes}); last.over && over == 0 {
				over = i
			}
		}
		testsupport.Equal(t, over, test.over, "with %[2]d requests a look, the failures are over at look %[1]d", test.rate)
	}
}

func TestATrendCoversTenMinutes(t *testing.T) {
	var tr trend
	outcomes := map[string]uint64{}
	for i := range (trendPoints + 5) * trendEvery {
		outcomes = map[string]uint64{"fill": outcomes["fill"] + 3, "deadline": outcomes["deadline"] + 1, "filtered": outcomes["filtered"] + 16, "shaped": outcomes["shaped"] + 9}
		saturation := 0.2
		if i == (trendPoints+5)*trendEvery-3 {
			saturation = 0.9
		}
		tr.look(saturation, outcomes)
	}
	if len(tr.Saturation) != trendPoints || len(tr.Failed) != trendPoints || tr.Saturation[0] != 20 || tr.Saturation[trendPoints-1] != 90 || tr.Failed[3] != 25 {
		t.Errorf("the trend is %+v", tr)
	}
}

func TestTheOverviewHasTheRoutesOfTheLastMinute(t *testing.T) {
	h, latency := newHistories(zap.NewNop()), metrics.Durations(time.Millisecond, time.Second)
	route := func(n uint64) []proxy.RouteCounts {
		return []proxy.RouteCounts{{Name: "default", Outcomes: map[string]uint64{"fill": n}, Latency: latency}}
	}
	for i := range minuteMarks*markEvery + 1 {
		latency.ObserveDuration(time.Millisecond)
		h.look(time.Now(), nil, route(uint64(i)+1))
	}
	all := route(minuteMarks*markEvery + 1)
	if got := h.lastMinuteOfRoute(&all[0]); got.Fills != got.Requests || got.Fills < 30 || got.Fills > 35 {
		t.Errorf("the last minute is %+v", got)
	}
	h.look(time.Now(), nil, nil)
	testsupport.Equal(t, len(h.byRoute), 0, "a removed route is still there: %v")
}
