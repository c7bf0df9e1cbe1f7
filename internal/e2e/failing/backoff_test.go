package failing

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

// The pause is longer than the test.
func TestRetryAfterPausesRequests(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ code, least, most int }{
		{503, 1, 1},
		{429, 3, 100}, // three 429 within a second pause; a slow machine may need more
	} {
		for _, date := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d, date %v", row.code, date), func(t *testing.T) {
				t.Parallel()
				s := e2e.Failing(t, sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always, Code: row.code, RetryAfter: sspsim.Duration(time.Hour), RetryAfterDate: date}})
				ab := e2e.Start(t, e2e.Single(s.URL(), "retry_after_max: 1h"))
				c := ab.Dial()
				n := 0
				for a := c.Get("/fillbuffer"); n <= row.most && a.Header("X-Adbuffer-Source") == "ssp/openx"; a = c.Get("/fillbuffer") {
					a.WantStatus("the SSP's own", row.code)
					n++
				}
				if n < row.least || n > row.most {
					t.Errorf("%d responses paused the SSP, want %d to %d", n, row.least, row.most)
				}
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
}

func TestThePauseOfRetryAfterEnds(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		code    int
		date    bool
		outcome string // of the SSP's own response
	}{
		{"429", 429, false, "client_error"},
		{"503 with a date", 503, true, "server_error"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := e2e.Failing(t, sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always, Code: row.code, RetryAfter: sspsim.Duration(2 * time.Second), RetryAfterDate: row.date}})
			ab := e2e.Start(t, e2e.Single(s.URL(), "retry_after_share: 0"))
			c := ab.Dial()
			refused := 0
			testsupport.Eventually(t, "the pause ends", func() bool {
				if c.Get("/fillbuffer").Header("X-Adbuffer-Source") == "proxy/ssp_backoff" {
					refused++
				}
				return s.Counters().Requests > 1
			})
			e2e.WantRequests(t, s, 2)
			// A date has whole seconds, so the pause may be up to 1 s shorter.
			pause, atLeast := s.Requests()[1].Time.Sub(s.Requests()[0].Time), 2*time.Second
			if row.date {
				atLeast = time.Second
			}
			t.Logf("paused for %v, %d requests refused", pause, refused)
			if pause < atLeast {
				t.Errorf("the SSP got a request %v after it asked for a pause, want %v", pause, atLeast)
			}
			ab.WantMetric(2, "adbuffer_ssp_requests_total", "outcome="+row.outcome)
			ab.WantMetric(float64(refused), "adbuffer_ssp_requests_total", "outcome=ssp_backoff")
		})
	}
}

func TestRetryAfterIsObeyedUpToItsCap(t *testing.T) {
	t.Parallel()
	s := e2e.Failing(t, sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always, Code: 429, RetryAfter: sspsim.Duration(time.Hour)}})
	ab := e2e.Start(t, e2e.Single(s.URL(), "retry_after_max: 100ms", "retry_after_share: 0"))
	c := ab.Dial()
	c.Get("/fillbuffer").WantStatus("the SSP's own", 429)
	testsupport.Eventually(t, "the SSP gets requests again", func() bool { c.Get("/fillbuffer"); return s.Counters().Requests > 1 })
}

// One client that provokes 429s must not stop the SSP for other clients.
func TestA429WithRetryAfterToOneInTenPausesNothing(t *testing.T) {
	t.Parallel()
	s := e2e.Failing(t, sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Every(10), Code: 429, RetryAfter: sspsim.Duration(time.Hour)}})
	ab := e2e.Start(t, e2e.Single(s.URL()))
	c := ab.Dial()
	for range 200 {
		c.Get("/fillbuffer").WantSource("ssp/openx")
	}
	e2e.WantRequests(t, s, 200)
	ab.WantMetric(20, "adbuffer_ssp_requests_total", "outcome=client_error")
	ab.WantMetric(20, "adbuffer_ssp_retry_after_responses_total", "effect=ignored")
	ab.WantMetric(0, "adbuffer_ssp_retry_after_responses_total", "effect=paused")
	ab.WantMetric(0, "adbuffer_ssp_backoff_remaining_seconds", "ssp=openx")
}

func TestA429WithoutRetryAfterPausesNothing(t *testing.T) {
	t.Parallel()
	s := e2e.Failing(t, sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always, Code: 429}})
	ab := e2e.Start(t, e2e.Single(s.URL()))
	c := ab.Dial()
	for range 50 {
		c.Get("/fillbuffer").WantStatus("the SSP's own", 429).WantSource("ssp/openx")
	}
	e2e.WantRequests(t, s, 50)
	ab.WantMetric(0, "adbuffer_breaker_shed_ratio", "ssp=openx") // 4xx is no failure
}
