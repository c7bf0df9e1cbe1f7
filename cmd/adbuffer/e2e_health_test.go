package main

import (
	"syscall"
	"testing"
)

// Load balancers that reach the traffic port only are told there.
func TestHealthPathAnswersReadinessOnTheTrafficPort(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	ab := start(t, "server: {health_path: /health}\n"+single(s.URL()), "ADBUFFER_SERVER_DRAIN_DELAY=2s")
	c := ab.dial()
	before := ab.scrape().sum("adbuffer_requests_total")
	if a := c.get("/health").wantStatus("ready", 200); a.body != "ready\n" {
		t.Errorf("body %q", a.body)
	}
	c.do("HEAD", "/health", "").wantStatus("HEAD", 200)
	c.get("/fillbuffer").wantFill("openx")
	if n := ab.scrape().sum("adbuffer_requests_total") - before; n != 1 {
		t.Errorf("%v requests counted, want the one that is none of a load balancer", n)
	}
	ab.signal(syscall.SIGTERM)
	eventually(t, "draining", func() bool { _, ok := ab.log.line("draining"); return ok })
	c.get("/health").wantStatus("draining", 503)
	ab.wantExit(0)
}

// min_idle connections are there before /readyz says so; an SSP that is down
// delays it by warmup_timeout, and no more.
func TestReadinessWaitsForWarmPoolsUpToWarmupTimeout(t *testing.T) {
	t.Parallel()
	warm, down := healthy(t), healthy(t)
	refused := down.URL()
	down.Close() //nolint:errcheck // so that its port refuses
	ab := start(t, sprintf(`
admin: {warmup_timeout: 300ms}
ssps:
  - {name: warm, endpoints: [%q], pool: {min_idle: 5}}
  - {name: down, endpoints: [%q], pool: {min_idle: 1}}
routes:
  - {name: default, match: {path: /fillbuffer}, ssps: [warm, down], client_choice: true}
`, warm.URL(), refused))
	if n := warm.Counters().OpenConnections; n != 5 {
		t.Errorf("%d connections are open, want min_idle, 5", n)
	}
	ab.wantMetric(1, "adbuffer_pool_warm", "ssp=warm")
	ab.wantMetric(0, "adbuffer_pool_warm", "ssp=down")
	if line, ok := ab.log.line("not all min_idle connections could be opened in time; see pool.min_idle and admin.warmup_timeout"); !ok || line["ssp"] != "down" {
		t.Errorf("no warning about the SSP that is down:\n%s", ab.log)
	}
	ab.get("/fillbuffer").wantFill("warm")
	ab.get("/fillbuffer/down").wantStatus("down", 502)
	if status, _ := ab.ask("/readyz"); status != 200 {
		t.Errorf("/readyz answers %d because of an SSP", status)
	}
	if n := warm.Counters().Connections; n != 5 {
		t.Errorf("%d connections were dialled, want none beyond the warm ones", n)
	}
}
