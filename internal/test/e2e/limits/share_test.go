package limits

import (
	"fmt"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
)

// Without shares, an SSP that hangs with clients' bodies in flight would take all of
// server.max_buffered_bytes, and the requests to other SSPs would end as overloaded.
func TestAnSSPThatHangsHoldsAtMostItsShareOfRequests(t *testing.T) {
	t.Parallel()
	const body = 10_000
	for setting, protocol := range map[string]sspsim.Protocol{"http1": sspsim.HTTP1, "http1-pipelined": sspsim.HTTP1, "h2c": sspsim.H2C} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			hangs := e2e.StartGated(t, sspsim.Options{Protocol: protocol})
			ab := e2e.Start(t, fmt.Sprintf(`
server: {max_buffered_bytes: 400000}
ssps:
  - {name: hangs, endpoints: [%q], protocol: %s, pool: {max_conns: 2, max_pending: 1000, pending_timeout: 30s}}
  - {name: honest, endpoints: [%q]}
routes:
  - {name: default, match: {path: /fillbuffer}, ssps: [hangs, honest], client_choice: true}
`, hangs.URL(), setting, e2e.Healthy(t).URL()))
			const fit = 7 // in three quarters of 100,000 bytes
			var held []*e2e.Client
			for i := range fit {
				c := ab.Dial()
				c.Send(e2e.Request("POST", "/fillbuffer/hangs", strings.Repeat("b", body), "X-Adbuffer-Timeout-Ms: 30000"))
				ab.AwaitMetric(float64(i+1), "adbuffer_ssp_in_flight_requests", "ssp=hangs")
				held = append(held, c)
			}
			ab.WantMetric(fit*body, "adbuffer_ssp_buffered_bytes", "ssp=hangs")
			ab.WantMetric(fit*body, "adbuffer_buffered_bytes")
			c := ab.Dial()
			ab.WantRefusal("one more", e2e.Refusal{Status: 503, Reason: "overloaded", SSP: "hangs", Names: []string{"70000 of 100000", "ssps[].max_buffered_bytes"}},
				func() *e2e.Response {
					return c.Post("/fillbuffer/hangs", strings.Repeat("b", body), "X-Adbuffer-Timeout-Ms: 30000")
				})
			for range 20 {
				c.Post("/fillbuffer/honest", strings.Repeat("b", body)).WantFill("honest")
			}
			hangs.Open()
			for _, c := range held {
				c.Read("POST").WantFill("hangs")
			}
			ab.AwaitMetric(0, "adbuffer_ssp_buffered_bytes", "ssp=hangs")
			ab.AwaitMetric(0, "adbuffer_buffered_bytes")
		})
	}
}
