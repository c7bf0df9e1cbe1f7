package forwarding

import (
	"fmt"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

func noBid(t testing.TB) *sspsim.SSP {
	t.Helper()
	return e2e.SSPWith(t, sspsim.Behaviour{Response: sspsim.Response{NoBid: sspsim.Always}})
}

func respondingWith(t testing.TB, status int) *sspsim.SSP {
	t.Helper()
	return e2e.Failing(t, sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always, Code: status}})
}

func TestParallelFirstForwardsTheFirstFillAndAbandonsTheOtherLegs(t *testing.T) {
	t.Parallel()
	// a has no bid, b fills when a's leg has ended and c has its request, c never responds. So
	// adbuffer abandons an exchange, not a dial.
	a, b, c := noBid(t), e2e.StartGated(t, sspsim.Options{}), e2e.Failing(t, sspsim.Faults{Stall: sspsim.Always})
	ab := e2e.Start(t, fmt.Sprintf(`
ssps: [{name: a, endpoints: [%q]}, {name: b, endpoints: [%q]}, {name: c, endpoints: [%q]}]
routes: [{name: default, match: {path: /fillbuffer}, mode: parallel-first, ssps: [a, b, c]}]
`, a.URL(), b.URL(), c.URL()))
	conn := ab.Dial()
	body := bidRequest(t)
	conn.Send(e2e.Request("POST", "/fillbuffer", body))
	ab.AwaitMetric(1, "adbuffer_ssp_requests_total", "ssp=a", "outcome=no_bid")
	e2e.AwaitInFlight(t, c, 1)
	opened := time.Now()
	b.Open()
	conn.Read("POST").WantFill("b")
	testsupport.AtMost(t, time.Since(opened), 15*time.Second, "response after %v: adbuffer waited for the stalled SSP")
	for _, s := range []*sspsim.SSP{a, c} {
		testsupport.Equal(t, s.Counters().Requests, 1, "an SSP received %d requests")
		if r := e2e.LastRequest(t, s); string(r.Body) != body {
			t.Errorf("the SSP got the body %q", r.Body)
		}
	}
	ab.AwaitMetric(1, "adbuffer_ssp_requests_total", "ssp=c", "outcome=cancelled")
	ab.WantMetric(1, "adbuffer_requests_total", "route=default", "outcome=fill")
	// The abandoned connection is closed after its linger.
	ab.AwaitMetric(0, "adbuffer_pool_places_in_use", "ssp=c")
	ab.AwaitMetric(1, "adbuffer_pool_connections_closed_total", "ssp=c", "reason=timeout")
}
