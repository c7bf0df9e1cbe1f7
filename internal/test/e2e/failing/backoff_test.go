package failing

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// The pause is longer than the test.
func TestRetryAfterPausesRequests(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		code, least, most int
		date              bool
	}{
		{503, 1, 1, true},
		{429, 3, 100, false}, // three 429 within a second pause; a slow machine may need more
	} {
		t.Run(fmt.Sprintf("%d, date %v", row.code, row.date), func(t *testing.T) {
			t.Parallel()
			s := e2e.Failing(t, sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always, Code: row.code, RetryAfter: sspsim.Duration(time.Hour), RetryAfterDate: row.date}})
			ab := e2e.Start(t, e2e.Single(s.URL(), "retry_after_max: 1h"))
			c := ab.Dial()
			n := 0
			for a := c.Get("/fillbuffer"); n <= row.most && a.Header("X-Adbuffer-Source") == "ssp/openx"; a = c.Get("/fillbuffer") {
				a.WantStatus("the SSP's own", row.code)
				n++
			}
			testsupport.True(t, n >= row.least && n <= row.most, "%d responses paused the SSP, want %d to %d", n, row.least, row.most)
			ab.WantMetric(1, "adbuffer_ssp_retry_after_responses_total", "effect=paused")
			want := e2e.Refusal{Status: 503, Reason: "ssp_backoff", SSP: "openx", Names: []string{"Retry-After", "retry_after_max"}}
			a := ab.WantRefusal("during the pause", want, func() *e2e.Response { return c.Get("/fillbuffer") })
			// A date has whole seconds, so the pause may be up to 1 s shorter.
			after, err := strconv.Atoi(a.Header("Retry-After"))
			if passed := time.Since(e2e.LastRequest(t, s).Time); err != nil || after > 3600 || float64(after) < 3599-passed.Seconds() {
				t.Errorf("Retry-After is %q, %v after the SSP asked for an hour", a.Header("Retry-After"), passed)
			}
			e2e.WantRequests(t, s, uint64(n))
		})
	}
}
