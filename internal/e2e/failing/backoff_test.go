package failing

import (
	"strconv"
	"testing"
	"time"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

func TestRetryAfterPausesRequests(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		code    int
		date    bool
		outcome string // of the SSP's own response
		needed  int    // responses until it pauses
	}{
		{"429", 429, false, "client_error", 3},
		{"503 with a date", 503, true, "server_error", 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := e2e.StartSSP(t, sspsim.Options{Record: row.needed + 1, Behaviour: sspsim.Behaviour{Faults: sspsim.Faults{
				Status: sspsim.Status{Chance: sspsim.Always, Code: row.code, RetryAfter: 2 * time.Second, RetryAfterDate: row.date},
			}}})
			ab := e2e.Start(t, e2e.Single(s.URL()))
			c := ab.Dial()
			for range row.needed {
				c.Get("/fillbuffer").WantStatus("the SSP's own", row.code).WantSource("ssp/openx")
			}
			asked := time.Now()
			want := e2e.Refusal{Status: 503, Reason: "ssp_backoff", SSP: "openx", Names: []string{"Retry-After", "retry_after_max"}}
			ab.WantRefusal("during the pause", want, func() *e2e.Response { return c.Get("/fillbuffer") })
			refused := 2
			if after, err := strconv.Atoi(c.Get("/fillbuffer").Header("Retry-After")); err != nil || after < 1 || after > 3 {
				t.Errorf("Retry-After is %d, %v", after, err)
			}
			for c.Get("/fillbuffer").Header("X-Adbuffer-Source") == "proxy/ssp_backoff" {
				if refused++; time.Since(asked) > testsupport.Patience {
					t.Fatal("the pause does not end")
				}
				time.Sleep(20 * time.Millisecond)
			}
			e2e.WantRequests(t, s, uint64(row.needed)+1)
			// A date has whole seconds: up to one is lost.
			pause, atLeast := s.Requests()[row.needed].Time.Sub(s.Requests()[row.needed-1].Time), 2*time.Second
			if row.date {
				atLeast = time.Second
			}
			t.Logf("paused for %v, %d requests refused", pause, refused)
			if pause < atLeast {
				t.Errorf("the SSP was asked again after %v, want %v", pause, atLeast)
			}
			ab.WantMetric(float64(row.needed+1), "adbuffer_ssp_requests_total", "outcome="+row.outcome)
			ab.WantMetric(float64(refused), "adbuffer_ssp_requests_total", "outcome=ssp_backoff")
		})
	}
}

func TestRetryAfterIsObeyedUpToItsCap(t *testing.T) {
	t.Parallel()
	s := e2e.Failing(t, sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always, Code: 429, RetryAfter: time.Hour}})
	ab := e2e.Start(t, e2e.Single(s.URL(), "retry_after_max: 100ms", "retry_after_share: 0"))
	c := ab.Dial()
	c.Get("/fillbuffer").WantStatus("the SSP's own", 429)
	testsupport.Eventually(t, "the SSP is asked again", func() bool { c.Get("/fillbuffer"); return s.Counters().Requests > 1 })
}

// One client that provokes 429s must not stop the SSP for other clients.
func TestA429WithRetryAfterToOneInTenPausesNothing(t *testing.T) {
	t.Parallel()
	s := e2e.Failing(t, sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Every(10), Code: 429, RetryAfter: time.Hour}})
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
