package limits

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// sharing is a configuration whose one SSP, openx, has a limit that replicas share through s.
// settings are further keys of qps.
func sharing(s *testsupport.Redis, endpoint, settings string) string {
	return fmt.Sprintf(`
fleet: {redis: {address: %q}, expected_replicas: 4, replica_timeout: 2s}
ssps:
  - {name: openx, endpoints: [%q], qps: {scope: fleet, %s}, breaker: {enabled: false}}
routes:
  - {name: single, match: {path: /single}, ssps: [openx]}
  - {name: legs, match: {path: /legs}, mode: parallel-all, ssps: [openx]}
`, s.Addr, endpoint, settings)
}

// startFleet starts replicas that share limits.
func startFleet(t *testing.T, n int, config string) (all []*e2e.Process) {
	t.Helper()
	for range n {
		all = append(all, e2e.Start(t, config))
	}
	for _, ab := range all {
		ab.AwaitMetric(float64(n), "adbuffer_qps_replicas", "ssp=openx")
		ab.AwaitMetric(1, "adbuffer_qps_fleet_connected", "ssp=openx")
	}
	return all
}

// Each request that a replica sends counts, including retries and legs of fan-outs.
func TestThreeReplicasKeepToOneQPSLimit(t *testing.T) {
	t.Parallel()
	// Every fourth request on a used connection is lost with it, and is sent again.
	s := e2e.StartSSP(t, sspsim.Options{Behaviour: sspsim.Behaviour{Connections: sspsim.Connections{MaxRequests: 4}}})
	const limit, burst = 30.0, 15.0 // a slow machine sends more than that
	all := startFleet(t, 3, sharing(testsupport.StartRedis(t), s.URL(), fmt.Sprintf("limit: %v, burst: %v", limit, burst)))
	traffics := map[*e2e.Process]*e2e.Traffic{}
	for _, ab := range all {
		traffics[ab] = ab.StartTraffic(4, 25*time.Millisecond, "/single?n=", "/legs?n=")
	}
	// A slow machine may send less than the limit allows, but not in each run, and never more.
	const attempts = 5
	for attempt := 1; ; attempt++ {
		before, began := s.Counters().Requests, time.Now()
		time.Sleep(5 * time.Second)
		sent, took := float64(s.Counters().Requests-before), time.Since(began).Seconds()
		t.Logf("%.0f requests sent in %.2f s, of which the limit allows %.0f", sent, took, limit*took+burst)
		// A stall of the machine separates replicas for a moment. Each then has its own burst.
		most := limit*took + 2*burst
		if sent > most || sent < 0.7*most && attempt == attempts {
			t.Errorf("%.0f requests sent in %.2f s, want at most %.0f and not much less", sent, took, most)
		}
		if sent >= 0.7*most || attempt == attempts {
			break
		}
	}
	sent := float64(s.Counters().Requests)
	for _, ab := range all {
		m := ab.Scrape()
		if fills := m.Value("adbuffer_ssp_requests_total", "ssp=openx", "outcome=fill"); fills < 0.15*sent || fills > 0.6*sent {
			t.Errorf("one replica has sent %.0f of %.0f", fills, sent)
		}
		testsupport.True(t, m.Value("adbuffer_qps_limited_total", "ssp=openx") != 0, "a replica never reached the limit")
	}

	traffics[all[2]].Stop() // its clients' errors do not matter here
	all[2].ExitIsTested = true
	all[2].Signal(syscall.SIGKILL)
	all[2].WantExit(-1)
	for _, ab := range all[:2] {
		ab.AwaitMetric(2, "adbuffer_qps_replicas", "ssp=openx")
	}
	testsupport.Eventually(t, "two replicas share the whole limit", func() bool {
		share := 0.0
		for _, ab := range all[:2] {
			share += ab.Metric("adbuffer_qps_share", "ssp=openx")
		}
		return share > 0.9*limit
	})
	// The other replicas get the share of a drained replica at once.
	traffics[all[1]].Stop()
	all[1].Terminate(0)
	all[0].AwaitMetric(1, "adbuffer_qps_replicas", "ssp=openx")
}

// Redis hangs, stops, or restarts without data. Meanwhile requests get responses without delay,
// with the last shares.
func TestRequestsContinueWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	ssp := e2e.Healthy(t)
	r := testsupport.StartRedis(t)
	const limit, burst = 200.0, 50.0
	all := startFleet(t, 3, sharing(r, ssp.URL(), fmt.Sprintf("limit: %v, burst: %v", limit, burst)))
	before, began := ssp.Counters().Requests, time.Now()
	for _, ab := range all {
		ab.StartTraffic(4, 25*time.Millisecond, "/single?n=")
	}
	await := func(connected float64) {
		t.Helper()
		for _, ab := range all {
			ab.AwaitMetric(connected, "adbuffer_qps_fleet_connected", "ssp=openx")
			n := ab.Metric("adbuffer_ssp_requests_total", "ssp=openx", "outcome=fill")
			ab.AwaitMetricAbove(n+50, "adbuffer_ssp_requests_total", "ssp=openx", "outcome=fill")
		}
	}
	await(1)
	r.Pause()
	await(0)
	r.Resume()
	await(1)
	r.Kill()
	await(0)
	r.Restart()
	await(1)
	for _, ab := range all {
		ab.AwaitMetric(3, "adbuffer_qps_replicas", "ssp=openx")
	}
	// Each replica may have saved its part of the burst while it was alone.
	sent, took := float64(ssp.Counters().Requests-before), time.Since(began).Seconds()
	t.Logf("%.0f requests sent in %.2f s, of which the limit allows %.0f", sent, took, limit*took+2*burst)
	testsupport.AtMost(t, sent, limit*took+2*burst, "%.0f requests sent in %.2f s", took)
	for _, ab := range all {
		m := ab.Scrape()
		for o := range exchange.Outcomes {
			if n := m.Sum("adbuffer_ssp_requests_total", "ssp=openx", "outcome="+o.String()); n > 0 && o != exchange.Fill && o != exchange.QPSLimit {
				t.Errorf("%v requests ended as %s", n, o)
			}
		}
		testsupport.True(t, m.Value("adbuffer_qps_lease_errors_total", "ssp=openx") != 0, "no call has failed")
		log := ab.Log.String()
		// An outage has one line, however many calls fail. A slow machine may add an outage.
		away, back := strings.Count(log, "Redis is away"), strings.Count(log, "Redis is back")
		testsupport.Between(t, away, 1, back+1, "the log has %d lines that Redis is away, and %d that it is back", back)
	}
}
