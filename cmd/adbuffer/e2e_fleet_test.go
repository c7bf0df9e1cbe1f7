package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/redistest"
	"adbuffer/internal/sspsim"
)

// sharing is a configuration whose one SSP, openx, has a limit that replicas share
// through s. settings are more of qps.
func sharing(s *redistest.Server, endpoint, settings string) string {
	return sprintf(`
fleet: {redis: {address: %q}, expected_replicas: 4, replica_timeout: 2s}
ssps:
  - {name: openx, endpoints: [%q], qps: {scope: fleet, %s}, breaker: {enabled: false}}
routes:
  - {name: single, match: {path: /single}, ssps: [openx]}
  - {name: legs, match: {path: /legs}, mode: parallel-all, ssps: [openx]}
`, s.Addr, endpoint, settings)
}

// startFleet starts replicas that know of each other.
func startFleet(t *testing.T, n int, config string) (all []*adbuffer) {
	t.Helper()
	for range n {
		all = append(all, start(t, config))
	}
	for _, ab := range all {
		ab.awaitMetric(float64(n), "adbuffer_qps_replicas", "ssp=openx")
		ab.awaitMetric(1, "adbuffer_qps_fleet_connected", "ssp=openx")
	}
	return all
}

// What replicas send counts, retries and legs of fan-outs too.
func TestThreeReplicasKeepToOneQPSLimit(t *testing.T) {
	t.Parallel()
	// Every fourth request on a used connection is lost with it, and is sent again.
	s := startSSP(t, sspsim.Options{Behaviour: sspsim.Behaviour{Connections: sspsim.Connections{MaxRequests: 4}}})
	const limit, burst = 200.0, 25.0
	all := startFleet(t, 3, sharing(redistest.Start(t), s.URL(), sprintf("limit: %v, burst: %v", limit, burst)))
	before, began := s.Counters().Requests, time.Now()
	traffics := map[*adbuffer]*traffic{}
	for _, ab := range all {
		traffics[ab] = ab.startTraffic(4, 5*time.Millisecond, "/single?n=", "/legs?n=")
	}
	time.Sleep(5 * time.Second)
	sent, took := float64(s.Counters().Requests-before), time.Since(began).Seconds()
	t.Logf("%.0f requests sent in %.2f s, of which the limit allows %.0f", sent, took, limit*took+burst)
	// A machine that stalls cuts replicas off for a moment, with a burst of their own.
	if most := limit*took + 2*burst; sent > most || sent < 0.7*most {
		t.Errorf("%.0f requests sent in %.2f s, want at most %.0f and not much less", sent, took, most)
	}
	for _, ab := range all {
		m := ab.scrape()
		if fills := m.value("adbuffer_ssp_requests_total", "ssp=openx", "outcome=fill"); fills < 0.15*sent || fills > 0.6*sent {
			t.Errorf("one replica has sent %.0f of %.0f", fills, sent)
		}
		if m.value("adbuffer_qps_limited_total", "ssp=openx") == 0 {
			t.Error("a replica never met the limit")
		}
	}

	traffics[all[2]].stop() // its clients' errors are not what this is about
	all[2].exitIsTested = true
	all[2].signal(syscall.SIGKILL)
	all[2].wantExit(-1)
	for _, ab := range all[:2] {
		ab.awaitMetric(2, "adbuffer_qps_replicas", "ssp=openx")
	}
	eventually(t, "two share all of it", func() bool {
		share := 0.0
		for _, ab := range all[:2] {
			share += ab.metric("adbuffer_qps_share", "ssp=openx")
		}
		return share > 0.9*limit
	})
	// One that ends in peace is missed at once.
	traffics[all[1]].stop()
	all[1].signal(syscall.SIGTERM)
	all[1].wantExit(0)
	all[0].awaitMetric(1, "adbuffer_qps_replicas", "ssp=openx")
}

// While Redis hangs, is gone, or comes back empty, requests are answered as fast
// as ever, at the last shares.
func TestRequestsGoOnWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	ssp := healthy(t)
	r := redistest.Start(t)
	const limit, burst = 200.0, 50.0
	all := startFleet(t, 3, sharing(r, ssp.URL(), sprintf("limit: %v, burst: %v", limit, burst)))
	before, began := ssp.Counters().Requests, time.Now()
	for _, ab := range all {
		ab.startTraffic(4, 5*time.Millisecond, "/single?n=")
	}
	await := func(connected float64) {
		t.Helper()
		for _, ab := range all {
			ab.awaitMetric(connected, "adbuffer_qps_fleet_connected", "ssp=openx")
			n := ab.metric("adbuffer_ssp_requests_total", "ssp=openx", "outcome=fill")
			ab.awaitMetricAbove(n+50, "adbuffer_ssp_requests_total", "ssp=openx", "outcome=fill")
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
		ab.awaitMetric(3, "adbuffer_qps_replicas", "ssp=openx")
	}
	// Each replica may have saved up its part of the burst while it was alone.
	sent, took := float64(ssp.Counters().Requests-before), time.Since(began).Seconds()
	t.Logf("%.0f requests sent in %.2f s, of which the limit allows %.0f", sent, took, limit*took+2*burst)
	if sent > limit*took+2*burst {
		t.Errorf("%.0f requests sent in %.2f s", sent, took)
	}
	for _, ab := range all {
		m := ab.scrape()
		for _, o := range outcomes {
			if n := m.value("adbuffer_ssp_requests_total", "ssp=openx", "outcome="+o); n > 0 && o != "fill" && o != "qps_limit" {
				t.Errorf("%v requests ended as %s", n, o)
			}
		}
		if m.value("adbuffer_qps_lease_errors_total", "ssp=openx") == 0 {
			t.Error("no call has failed")
		}
		log := ab.log.String()
		if n := strings.Count(log, "Redis is away"); n < 1 || n > 2 {
			t.Errorf("the log says %d times that Redis is away", n)
		}
	}
}

func TestADryLimitOfTheFleetCountsAndRefusesNothing(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	ab := startFleet(t, 1, sharing(redistest.Start(t), s.URL(), "limit: 0.01, burst: 2, dry_run: true"))[0]
	c := ab.dial()
	for range 10 {
		c.get("/single").wantFill("openx")
	}
	if n := ab.metric("adbuffer_qps_limited_total", "ssp=openx"); n < 7 || n > 9 {
		t.Errorf("%v were counted, want those beyond the burst", n)
	}
}

func TestReloadChangesAFleetsLimitAndScopeInPlace(t *testing.T) {
	t.Parallel()
	s, r := healthy(t), redistest.Start(t)
	ab := startReloadable(t, sharing(r, s.URL(), "limit: 1000"))
	ab.awaitMetric(1000, "adbuffer_qps_share", "ssp=openx")
	reload := func(config string) {
		t.Helper()
		ab.write(config)
		ab.signal(syscall.SIGHUP)
	}
	reload(sharing(r, s.URL(), "limit: 400"))
	ab.awaitMetric(400, "adbuffer_qps_share", "ssp=openx")
	ab.get("/single").wantFill("openx")

	own := strings.Replace(sharing(r, s.URL(), "limit: 400"), "scope: fleet", "scope: instance", 1)
	reload(own)
	eventually(t, "the limit is the process's own", func() bool { return len(ab.scrape().all("adbuffer_qps_share")) == 0 })
	ab.get("/single").wantFill("openx")

	reload(sharing(r, s.URL(), "limit: 600"))
	eventually(t, "the limit is the fleet's again", func() bool { return len(ab.scrape().all("adbuffer_qps_share")) == 1 })
	ab.awaitMetric(600, "adbuffer_qps_share", "ssp=openx")
	ab.get("/single").wantFill("openx")

	reload(strings.Replace(own, "expected_replicas: 4", "expected_replicas: 5", 1))
	ab.awaitMetric(0, "adbuffer_config_last_reload_successful")
	ab.wantMetric(600, "adbuffer_qps_share", "ssp=openx")
}

func TestCheckPrintsTheFleetWithoutItsPassword(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config, password := filepath.Join(dir, "adbuffer.yaml"), filepath.Join(dir, "password")
	for file, text := range map[string]string{
		password: "not-to-be-printed\n",
		config: sprintf(`
fleet: {redis: {address: "127.0.0.1:6379", username: ads, password_file: %q}, expected_replicas: 3}
ssps: [{name: openx, endpoints: ["http://127.0.0.1:9000/bid"], qps: {limit: 100, scope: fleet}}]
routes: [{name: default, match: {path: /fillbuffer}, ssps: [openx]}]
`, password),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, log, code := command(t, nil, "check", "--config", config)
	for _, want := range []string{"scope: fleet", "expected_replicas: 3", `address: "127.0.0.1:6379"`, `username: "ads"`} {
		if !strings.Contains(out, want) {
			t.Errorf("check does not print %q", want)
		}
	}
	if code != 0 || strings.Contains(out+log, "not-to-be-printed") {
		t.Errorf("exit status %d: %s%s", code, out, log)
	}
}
