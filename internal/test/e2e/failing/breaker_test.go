package failing

import (
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

func TestAShedRequestIsBreakerOpen(t *testing.T) {
	t.Parallel()
	s := e2e.Failing(t, sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always}})
	ab := e2e.Start(t, e2e.Single(s.URL(), "breaker: {window: 10m, min_probe: 0.001}"))
	c := ab.Dial()
	for range 30 {
		c.Get("/fillbuffer") // the SSP's own 503
	}
	want := e2e.Refusal{Status: 503, Reason: "breaker_open", SSP: "openx", Names: []string{"breaker", "10m0s", "50 %"}}
	for ab.Scrape().Value("adbuffer_ssp_requests_total", "outcome=breaker_open") == 0 { // one in a thousand passes
		c.Get("/fillbuffer")
	}
	ab.WantRefusal("shed", want, func() *e2e.Response { return c.Get("/fillbuffer") })
}

func TestShortDeadlinesOfClientsOpenNoBreaker(t *testing.T) {
	t.Parallel()
	s := e2e.Failing(t, sspsim.Faults{Stall: sspsim.Always})
	ab := e2e.Start(t, e2e.Single(s.URL(), "breaker: {window: 10m}"), "ADBUFFER_DEADLINE_DEFAULT=1s")
	ab.Concurrently(10, func(w *e2e.Worker) error {
		for range 10 {
			a, err := w.Exchange("GET", "/fillbuffer", "", "X-Adbuffer-Timeout-Ms: 12")
			if err != nil {
				return err
			}
			a.WantStatus("12 ms", 504).WantSource("proxy/deadline")
		}
		return nil
	})
	ab.WantMetric(0, "adbuffer_breaker_shed_ratio", "ssp=openx")
	// Requests with the default deadline count for the breaker. On a slow machine a request may
	// begin its leg late. Then the SSP has less time than usual, and the request does not count.
	testsupport.Eventually(t, "the breaker sheds 0.9 of the requests after timeouts alone", func() bool {
		ab.Concurrently(25, func(w *e2e.Worker) error {
			a, err := w.Exchange("GET", "/fillbuffer", "")
			if err == nil && a.Header("X-Adbuffer-Source") != "proxy/breaker_open" {
				a.WantStatus("1 s", 504).WantSource("proxy/deadline")
			}
			return err
		})
		return t.Failed() || ab.Metric("adbuffer_breaker_shed_ratio", "ssp=openx") >= 0.85
	})
}
