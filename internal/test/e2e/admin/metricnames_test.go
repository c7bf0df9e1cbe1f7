package admin

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// The set of series does not grow with traffic, and events that cannot happen have no series.
func TestSeriesAreThereFromTheStartIfTheyCanChange(t *testing.T) {
	t.Parallel()
	ab := e2e.Start(t, fmt.Sprintf(`
ssps:
  - {name: a, endpoints: [%[1]q]}
  - {name: b, endpoints: [%[1]q]}
routes:
  - {name: default, match: {path: /fillbuffer}, ssps: [a, b]}
`, e2e.Healthy(t).URL()))
	m := ab.Scrape()
	series := 0
	for name, all := range m.Series {
		if strings.HasPrefix(name, "adbuffer_") {
			series += len(all)
		}
		for _, s := range all {
			if strings.HasPrefix(name, "adbuffer_") && m.Types[name] == "counter" {
				testsupport.Equal(t, s.Value, 0, "%v at the start of "+s.Metric.String())
			}
		}
	}
	for name, labels := range map[string]string{
		"ssp_requests_total": "outcome=no_route", "requests_total": "outcome=cancelled", "endpoint_state": "state=unhealthy", "endpoint_checks_total": "ssp=a",
		"tls_handshake_errors_total": "ssp=a", "dns_addresses_dropped_total": "ssp=a", "pipeline_head_wait_seconds_count": "ssp=a", "fairness_evicted_total": "ssp=a",
		"pool_connections": "protocol=http2", "pool_connections_closed_total": "reason=goaway", "pool_dial_errors_total": "kind=tls",
	} {
		if found := m.All("adbuffer_"+name, labels); len(found) > 0 {
			t.Errorf("%s with %s has %d series", name, labels, len(found))
		}
	}
	c := ab.Dial()
	c.Get("/fillbuffer").WantFill("a")
	c.Get("/other")
	c.Do("PUT", "/", "")
	after := 0
	for name, all := range ab.Scrape().Series {
		if strings.HasPrefix(name, "adbuffer_") {
			after += len(all)
		}
	}
	testsupport.True(t, after == series, "%d series at the start, %d after traffic", series, after)
	t.Logf("%d series for 2 SSPs and a route", series)
	_, text := ab.AskAdmin("/metrics")
	cmd := exec.Command(testsupport.Needs(t, "prometheus", "promtool"), "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v: %s", err, out)
	}
}
