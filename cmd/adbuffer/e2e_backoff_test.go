package main

import (
	"testing"
	"time"

	"adbuffer/internal/sspsim"
)

func TestRetryAfterPausesWhatIsSent(t *testing.T) {
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
			s := startSSP(t, sspsim.Options{Record: row.needed + 1, Behaviour: sspsim.Behaviour{Faults: sspsim.Faults{
				Status: sspsim.Status{Chance: sspsim.Always, Code: row.code, RetryAfter: 2 * time.Second, RetryAfterDate: row.date},
			}}})
			ab := start(t, single(s.URL()))
			c := ab.dial()
			for range row.needed {
				c.get("/fillbuffer").wantStatus("the SSP's own", row.code).wantSource("ssp/openx")
			}
			asked := time.Now()
			want := refusal{status: 503, reason: "ssp_backoff", ssp: "openx", names: []string{"Retry-After", "retry_after_max"}}
			ab.wantRefusal("during the pause", want, func() *answer { return c.get("/fillbuffer") })
			refused := 1
			for c.get("/fillbuffer").header("X-Adbuffer-Source") == "proxy/ssp_backoff" {
				if refused++; time.Since(asked) > patience {
					t.Fatal("the pause does not end")
				}
				time.Sleep(20 * time.Millisecond)
			}
			wantAsked(t, s, uint64(row.needed)+1)
			// A date has whole seconds: up to one is lost.
			pause, atLeast := s.Requests()[row.needed].Time.Sub(s.Requests()[row.needed-1].Time), 2*time.Second
			if row.date {
				atLeast = time.Second
			}
			t.Logf("paused for %v, %d requests refused", pause, refused)
			if pause < atLeast {
				t.Errorf("the SSP was asked again after %v, want %v", pause, atLeast)
			}
			ab.wantMetric(float64(row.needed+1), "adbuffer_ssp_requests_total", "outcome="+row.outcome)
			ab.wantMetric(float64(refused), "adbuffer_ssp_requests_total", "outcome=ssp_backoff")
		})
	}
}

func TestRetryAfterIsObeyedUpToItsCap(t *testing.T) {
	t.Parallel()
	s := failing(t, sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always, Code: 429, RetryAfter: time.Hour}})
	ab := start(t, single(s.URL(), "retry_after_max: 100ms", "retry_after_share: 0"))
	c := ab.dial()
	c.get("/fillbuffer").wantStatus("the SSP's own", 429)
	eventually(t, "the SSP is asked again", func() bool { c.get("/fillbuffer"); return s.Counters().Requests > 1 })
}

// One client that provokes 429s must not stop the SSP for the others.
func TestA429WithRetryAfterToOneInTenPausesNothing(t *testing.T) {
	t.Parallel()
	s := failing(t, sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Every(10), Code: 429, RetryAfter: time.Hour}})
	ab := start(t, single(s.URL()))
	c := ab.dial()
	for range 200 {
		c.get("/fillbuffer").wantSource("ssp/openx")
	}
	wantAsked(t, s, 200)
	ab.wantMetric(20, "adbuffer_ssp_requests_total", "outcome=client_error")
	ab.wantMetric(20, "adbuffer_ssp_retry_after_responses_total", "effect=ignored")
	ab.wantMetric(0, "adbuffer_ssp_retry_after_responses_total", "effect=paused")
	ab.wantMetric(0, "adbuffer_ssp_backoff_remaining_seconds", "ssp=openx")
}

func TestA429WithoutRetryAfterPausesNothing(t *testing.T) {
	t.Parallel()
	s := failing(t, sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always, Code: 429}})
	ab := start(t, single(s.URL()))
	c := ab.dial()
	for range 50 {
		c.get("/fillbuffer").wantStatus("the SSP's own", 429).wantSource("ssp/openx")
	}
	wantAsked(t, s, 50)
	ab.wantMetric(0, "adbuffer_breaker_shed_ratio", "ssp=openx") // 4xx is no failure
}
