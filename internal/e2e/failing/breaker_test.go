package failing

import (
	"fmt"
	"math"
	"testing"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

// The shed share rises from 0 at a failure ratio of 0.5 to 0.9 at 1.
func TestTheBreakerShedsMoreTheMoreAnSSPFails(t *testing.T) {
	t.Parallel()
	for _, failures := range []float64{0.4, 0.75, 1} {
		t.Run(fmt.Sprintf("%v of the requests fail", failures), func(t *testing.T) {
			t.Parallel()
			s := e2e.Failing(t, sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Share(failures), Code: 500}})
			ab := e2e.Start(t, e2e.Single(s.URL(), "breaker: {window: 10m}"))
			var all e2e.Tally
			const clients, each = 4, 1000
			ab.Concurrently(clients, func(w *e2e.Worker) error {
				for range each {
					a, err := w.Exchange("GET", "/fillbuffer", "")
					if err != nil {
						return err
					}
					all.Add(a)
				}
				return nil
			})
			all.Log(t, t.Name())
			n := s.Counters()
			ratio := float64(n.ByStatus[500]) / float64(n.Requests)
			want := max(0, (ratio-0.5)/0.5*0.9)
			if got := ab.Metric("adbuffer_breaker_shed_ratio", "ssp=openx"); math.Abs(got-want) > 0.01 {
				t.Errorf("breaker_shed_ratio %.3f after %d failures of %d, want %.3f", got, n.ByStatus[500], n.Requests, want)
			}
			shed := all.Of("proxy/breaker_open 503")
			// The ratio varies until a few hundred requests are in the window.
			if got, want := float64(shed)/(clients*each), max(0, (failures-0.5)/0.5*0.9); math.Abs(got-want) > 0.12 {
				t.Errorf("%.3f of the requests were shed, want about %.2f", got, want)
			}
			if sent := int(n.Requests); sent+shed != clients*each {
				t.Errorf("%d sent and %d shed of %d", sent, shed, clients*each)
			}
			ab.WantMetric(float64(shed), "adbuffer_requests_total", "route=default", "outcome=breaker_open")
			ab.WantMetric(float64(shed), "adbuffer_ssp_requests_total", "ssp=openx", "outcome=breaker_open")
		})
	}
}

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

func TestADryBreakerCountsAndShedsNothing(t *testing.T) {
	t.Parallel()
	s := e2e.Failing(t, sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always}})
	ab := e2e.Start(t, e2e.Single(s.URL(), "breaker: {window: 10m, dry_run: true}"))
	c := ab.Dial()
	for range 100 {
		c.Get("/fillbuffer").WantStatus("the SSP's own", 503).WantSource("ssp/openx")
	}
	e2e.WantRequests(t, s, 100)
	if n := ab.Metric("adbuffer_breaker_shed_total", "ssp=openx", "dry_run=true"); n == 0 {
		t.Error("breaker_shed_total counts nothing")
	}
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
