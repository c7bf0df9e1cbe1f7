package limits

import (
	"fmt"
	"strings"
	"testing"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
)

// Before, an SSP that claimed bodies and sent none used the whole budget. After four claims of 1
// MB, another SSP's responses were refused as overloaded.
func TestLengthsThatAnSSPClaimsTakeNoMemory(t *testing.T) {
	t.Parallel()
	for name, claim := range map[string]string{
		"length": "HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n\r\nx",
		"chunk":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100000\r\nx",
	} {
		for _, protocol := range []string{"http1", "http1-pipelined"} {
			t.Run(name+" "+protocol, func(t *testing.T) {
				t.Parallel()
				url, hangUp := e2e.StartScriptedUntil(t, claim)
				ab := e2e.Start(t, fmt.Sprintf(`
server: {max_buffered_bytes: 4194304}
ssps:
  - {name: liar, endpoints: [%q], protocol: %s, pool: {pipeline_depth: 1}}
  - {name: honest, endpoints: [%q]}
routes:
  - {name: default, match: {path: /fillbuffer}, ssps: [liar, honest], client_choice: true}
`, url, protocol, e2e.Healthy(t).URL()))
				defer hangUp()
				for range 16 {
					ab.Dial().Send(e2e.Request("GET", "/fillbuffer/liar", "", "X-Adbuffer-Timeout-Ms: 30000"))
				}
				ab.AwaitMetric(16, "adbuffer_ssp_buffered_bytes", "ssp=liar") // one byte of each response has arrived
				c := ab.Dial()
				for range 20 {
					c.Get("/fillbuffer/honest").WantFill("honest")
				}
				ab.WantMetric(1<<20, "adbuffer_ssp_buffered_bytes_limit", "ssp=liar")
			})
		}
	}
}

// An SSP's share bounds the bytes that it sends, and the error names the share.
func TestAnSSPsResponsesHoldAtMostItsShare(t *testing.T) {
	t.Parallel()
	part := "HTTP/1.1 200 OK\r\nContent-Length: 8000\r\n\r\n" + strings.Repeat("x", 6000)
	for _, protocol := range []string{"http1", "http1-pipelined"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			url, hangUp := e2e.StartScriptedUntil(t, part)
			ab := e2e.Start(t, fmt.Sprintf(`
ssps:
  - {name: slow, endpoints: [%q], protocol: %s, pool: {pipeline_depth: 1}, max_buffered_bytes: 10000, max_response_bytes: 8000}
  - {name: honest, endpoints: [%q]}
routes:
  - {name: default, match: {path: /fillbuffer}, ssps: [slow, honest], client_choice: true}
`, url, protocol, e2e.Healthy(t).URL()))
			defer hangUp()
			ab.Dial().Send(e2e.Request("GET", "/fillbuffer/slow", "", "X-Adbuffer-Timeout-Ms: 30000"))
			ab.AwaitMetric(6000, "adbuffer_ssp_buffered_bytes", "ssp=slow")
			c := ab.Dial()
			ab.WantRefusal("a second", e2e.Refusal{Status: 503, Reason: "overloaded", SSP: "slow", Names: []string{"6000 of 10000", "ssps[].max_buffered_bytes"}},
				func() *e2e.Response { return c.Get("/fillbuffer/slow", "X-Adbuffer-Timeout-Ms: 30000") })
			c.Get("/fillbuffer/honest").WantFill("honest")
			ab.AwaitMetric(6000, "adbuffer_buffered_bytes")
		})
	}
}

// Before, an SSP that hung with clients' bodies in flight took all of server.max_buffered_bytes, and
// the requests to other SSPs ended as overloaded.
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
