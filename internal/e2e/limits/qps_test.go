package limits

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
)

func TestRequestsOverQPSAreRefused(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, e2e.Single(s.URL(), "qps: {limit: 0.01, burst: 2}"))
	c := ab.Dial()
	c.Get("/fillbuffer").WantFill("openx")
	c.Post("/fillbuffer", "{}").WantFill("openx")
	want := e2e.Refusal{Status: 503, Reason: "qps_limit", SSP: "openx", Names: []string{"0.01", "qps"}}
	ab.WantRefusal("a third", want, func() *e2e.Response { return c.Get("/fillbuffer") })
	e2e.WantRequests(t, s, 2)
	ab.WantMetric(1, "adbuffer_qps_limited_total", "ssp=openx")
	if after := c.Get("/fillbuffer").Header("Retry-After"); after != "100" {
		t.Errorf("Retry-After is %q, with a request in 100 s", after)
	}
}

func TestADryQPSLimitCountsAndRefusesNothing(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, e2e.Single(s.URL(), "qps: {limit: 0.01, burst: 2, dry_run: true}"))
	c := ab.Dial()
	for range 5 {
		c.Get("/fillbuffer").WantFill("openx")
	}
	ab.WantMetric(3, "adbuffer_qps_limited_total", "ssp=openx")
}

// Every attempt counts: retries and the legs of fan-outs too.
func TestTheRateSentKeepsToQPS(t *testing.T) {
	t.Parallel()
	// Every fourth request on a used connection is lost with it, and is sent again.
	s := e2e.StartSSP(t, sspsim.Options{Behaviour: sspsim.Behaviour{Connections: sspsim.Connections{MaxRequests: 4}}})
	other := e2e.Healthy(t)
	const limit, burst = 50.0, 150.0
	ab := e2e.Start(t, fmt.Sprintf(`
ssps:
  - {name: openx, endpoints: [%q], qps: {limit: %v, burst: %v}, breaker: {enabled: false}}
  - {name: other, endpoints: [%q]}
routes:
  - {name: single, match: {path: /single}, ssps: [openx]}
  - {name: legs, match: {path: /legs}, mode: parallel-all, ssps: [openx, other]}
`, s.URL(), limit, burst, other.URL()))
	// At the first refusal after 5 s the bucket is empty. Until then tokens were lost only if the machine
	// stalled for longer than the bucket takes to fill: the time without a response bounds their number.
	var (
		mu       sync.Mutex
		began    = time.Now()
		last     = began
		lost     float64
		finished bool
	)
	ended := func(a *e2e.Response) bool {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		lost += max(0, limit*now.Sub(last).Seconds()-burst)
		last = now
		finished = finished || a.Header("X-Adbuffer-Source") == "proxy/qps_limit" && now.Add(-a.Took).Sub(began) > 5*time.Second
		return finished
	}
	ab.Concurrently(8, func(w *e2e.Worker) error {
		for i := 0; ; i++ {
			a, err := w.Exchange("GET", []string{"/single", "/legs"}[i%2], "")
			if err != nil || ended(a) {
				return err
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	took := time.Since(began).Seconds()
	sent, want := float64(s.Counters().Requests), limit*took+burst
	t.Logf("%.0f requests sent in %.2f s, of which the limit allows %.0f, less %.0f while the machine stalled", sent, took, want, lost)
	if sent > want*1.05 || sent < (want-lost)*0.95 {
		t.Errorf("%.0f requests sent in %.2f s, want %.0f within 5 %%, less %.0f", sent, took, want, lost)
	}
	if n := ab.Metric("adbuffer_qps_limited_total", "ssp=openx"); n == 0 {
		t.Error("the limit was never met")
	}
}
