package limits

import (
	"fmt"
	"strings"
	"testing"

	"adbuffer/internal/e2e"
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
