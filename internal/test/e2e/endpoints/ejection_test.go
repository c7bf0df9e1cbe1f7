package endpoints

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// fails is an SSP that responds 500 to all requests.
var fails = sspsim.Behaviour{Faults: sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always, Code: 500}}}

var ejectionFigures = regexp.MustCompile(`^\d+ of \d+ requests failed, \d+ in a row$`)

// pair is a configuration of openx with two endpoints.
func pair(a, b *sspsim.SSP, settings string) string {
	return fmt.Sprintf(`
ssps:
  - name: openx
    endpoints: [%q, %q]
%s
routes: [{name: default, match: {path: /fillbuffer}, ssps: [openx]}]
`, a.URL(), b.URL(), settings)
}

// One of two endpoints fails. After the first few failures almost no request fails. Soon after the
// endpoint works again, it is used again.
func TestEndpointThatFailsIsEjectedAndComesBack(t *testing.T) {
	t.Parallel()
	good, bad := e2e.Healthy(t), e2e.SSPWith(t, fails)
	ab := e2e.Start(t, pair(good, bad, "    ejection: {base_time: 1s}"))
	c := ab.Dial()
	get := func(n int) (failed int) {
		for range n {
			if c.Get("/fillbuffer").Status != 200 {
				failed++
			}
		}
		return failed
	}
	// Five failures eject, and after each base_time one probe fails. A slow machine takes longer, so
	// more probes fail.
	began := time.Now()
	failed := get(200)
	if most := 5 + int(time.Since(began)/time.Second); failed < 5 || failed > most {
		t.Errorf("%d of the first 200 requests failed, want 5 to %d: the failures that eject, and the probes", failed, most)
	}
	failed += get(200)
	if most := 5 + int(time.Since(began)/time.Second); failed > most {
		t.Errorf("%d of 400 requests failed, want at most %d: the failures that eject, and the probes", failed, most)
	}
	name := bad.Addr()
	ab.WantMetric(1, "adbuffer_endpoint_state", "endpoint="+name, "state=ejected")
	ab.AwaitMetric(0, "adbuffer_endpoint_connections", "endpoint="+name) // the connection of a failed probe closes too
	ab.WantMetric(1, "adbuffer_endpoint_ejections_total", "endpoint="+name)
	ab.WantMetric(float64(failed), "adbuffer_endpoint_requests_total", "endpoint="+name, "outcome=server_error")
	const ejected = "an endpoint fails and gets no requests for a while; see ejection"
	ab.WantLogged(ejected)
	if lines := ab.Log.Lines(ejected); len(lines) != 1 || lines[0]["endpoint"] != name || lines[0]["for"] == nil || !ejectionFigures.MatchString(fmt.Sprint(lines[0]["why"])) {
		t.Errorf("the log has %v", lines)
	}

	e2e.SetBehaviour(t, bad, sspsim.Behaviour{})
	repaired := time.Now()
	testsupport.Eventually(t, "the endpoint is enabled again", func() bool {
		get(10)
		return ab.Metric("adbuffer_endpoint_state", "endpoint="+name, "state=enabled") == 1
	})
	t.Logf("it was enabled %v after it worked again", time.Since(repaired).Round(time.Millisecond))
	before := ab.Metric("adbuffer_endpoint_requests_total", "endpoint="+name, "outcome=fill")
	if failed := get(200); failed > 0 {
		t.Errorf("%d requests failed after that", failed)
	}
	if n := ab.Metric("adbuffer_endpoint_requests_total", "endpoint="+name, "outcome=fill") - before; n < 95 {
		t.Errorf("it got %v of 200 requests", n)
	}
}
