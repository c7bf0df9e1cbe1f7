package deploy

import (
	"fmt"
	"syscall"
	"testing"

	"adbuffer/internal/e2e"
	"adbuffer/internal/testsupport"
)

// Some load balancers reach only the traffic port.
func TestHealthPathReportsReadinessOnTheTrafficPort(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, "server: {health_path: /health}\n"+e2e.Single(s.URL()), "ADBUFFER_SERVER_DRAIN_DELAY=2s")
	c := ab.Dial()
	before := ab.Scrape().Sum("adbuffer_requests_total")
	if a := c.Get("/health").WantStatus("ready", 200); a.Body != "ready\n" {
		t.Errorf("body %q", a.Body)
	}
	c.Do("HEAD", "/health", "").WantStatus("HEAD", 200)
	c.Get("/fillbuffer").WantFill("openx")
	if n := ab.Scrape().Sum("adbuffer_requests_total") - before; n != 1 {
		t.Errorf("%v requests counted, want the one that no load balancer sent", n)
	}
	ab.Signal(syscall.SIGTERM)
	testsupport.Eventually(t, "draining", func() bool { _, ok := ab.Log.Line("draining"); return ok })
	c.Get("/health").WantStatus("draining", 503)
	ab.WantExit(0)
}

// min_idle connections are open before /readyz responds 200. An SSP that is down delays it by at
// most warmup_timeout.
func TestReadinessWaitsForWarmPoolsUpToWarmupTimeout(t *testing.T) {
	t.Parallel()
	warm, down := e2e.Healthy(t), e2e.Healthy(t)
	refused := down.URL()
	down.Close() //nolint:errcheck // so that the port refuses connections
	ab := e2e.Start(t, fmt.Sprintf(`
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
	ab.WantMetric(1, "adbuffer_pool_warm", "ssp=warm")
	ab.WantMetric(0, "adbuffer_pool_warm", "ssp=down")
	if line, ok := ab.Log.Line("not all min_idle connections could be opened in time; see pool.min_idle and admin.warmup_timeout"); !ok || line["ssp"] != "down" {
		t.Errorf("no warning about the SSP that is down:\n%s", ab.Log)
	}
	ab.Get("/fillbuffer").WantFill("warm")
	ab.Get("/fillbuffer/down").WantStatus("down", 502)
	if status, _ := ab.AskAdmin("/readyz"); status != 200 {
		t.Errorf("/readyz responds with %d because of an SSP", status)
	}
	if n := warm.Counters().Connections; n != 5 {
		t.Errorf("%d connections were dialled, want none beyond the warm ones", n)
	}
}
