package main

import (
	"testing"
	"time"

	"adbuffer/internal/sspsim"
)

func TestRequestsOverQPSAreRefused(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	ab := start(t, single(s.URL(), "qps: {limit: 0.01, burst: 2}"))
	c := ab.dial()
	c.get("/fillbuffer").wantFill("openx")
	c.post("/fillbuffer", "{}").wantFill("openx")
	want := refusal{status: 503, reason: "qps_limit", ssp: "openx", names: []string{"0.01", "qps"}}
	ab.wantRefusal("a third", want, func() *answer { return c.get("/fillbuffer") })
	wantAsked(t, s, 2)
	ab.wantMetric(1, "adbuffer_qps_limited_total", "ssp=openx")
}

func TestADryQPSLimitCountsAndRefusesNothing(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	ab := start(t, single(s.URL(), "qps: {limit: 0.01, burst: 2, dry_run: true}"))
	c := ab.dial()
	for range 5 {
		c.get("/fillbuffer").wantFill("openx")
	}
	ab.wantMetric(3, "adbuffer_qps_limited_total", "ssp=openx")
}

// What is sent counts: retries and the legs of fan-outs too.
func TestTheRateSentKeepsToQPS(t *testing.T) {
	t.Parallel()
	// Every fourth request on a used connection is lost with it, and is sent again.
	s := startSSP(t, sspsim.Options{Behaviour: sspsim.Behaviour{Connections: sspsim.Connections{MaxRequests: 4}}})
	other := healthy(t)
	const limit, burst, seconds = 200.0, 200.0, 5.0
	ab := start(t, sprintf(`
ssps:
  - {name: openx, endpoints: [%q], qps: {limit: %v, burst: %v}, breaker: {enabled: false}}
  - {name: other, endpoints: [%q]}
routes:
  - {name: single, match: {path: /single}, ssps: [openx]}
  - {name: legs, match: {path: /legs}, mode: parallel-all, ssps: [openx, other]}
`, s.URL(), limit, burst, other.URL()))
	for attempt := 1; ; attempt++ {
		before := s.Counters().Requests
		began := time.Now()
		ab.concurrently(8, func(w *worker) error {
			for i := 0; time.Since(began).Seconds() < seconds; i++ {
				if _, err := w.exchange("GET", []string{"/single", "/legs"}[i%2], ""); err != nil {
					return err
				}
				time.Sleep(5 * time.Millisecond)
			}
			return nil
		})
		took := time.Since(began).Seconds()
		// The burst lets a machine that stalls for less than a second catch up.
		sent, want := float64(s.Counters().Requests-before), limit*took+burst
		t.Logf("%.0f requests sent in %.2f s, of which the limit allows %.0f", sent, took, want)
		if sent > want*1.05 {
			t.Errorf("%.0f requests sent in %.2f s, want %.0f within 5 %%", sent, took, want)
		}
		if sent >= want*0.95 {
			break
		}
		if attempt == 3 { // a machine that stalls for longer has no such luck three times
			t.Errorf("%.0f requests sent in %.2f s, want %.0f within 5 %%", sent, took, want)
			break
		}
		time.Sleep(time.Duration(burst / limit * float64(time.Second))) // the bucket is full again
	}
	if n := ab.metric("adbuffer_qps_limited_total", "ssp=openx"); n == 0 {
		t.Error("the limit was never met")
	}
}
