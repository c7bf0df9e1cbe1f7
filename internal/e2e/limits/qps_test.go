package limits

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

func TestRequestsOverQPSAreRefused(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, e2e.Single(s.URL(), "qps: {limit: 0.01, burst: 2}"))
	c := ab.Dial()
	began := time.Now()
	c.Get("/fillbuffer").WantFill("openx")
	c.Post("/fillbuffer", "{}").WantFill("openx")
	want := e2e.Refusal{Status: 503, Reason: "qps_limit", SSP: "openx", Names: []string{"0.01", "qps"}}
	ab.WantRefusal("a third", want, func() *e2e.Response { return c.Get("/fillbuffer") })
	e2e.WantRequests(t, s, 2)
	ab.WantMetric(1, "adbuffer_qps_limited_total", "ssp=openx")
	after, err := strconv.Atoi(c.Get("/fillbuffer").Header("Retry-After"))
	if passed := time.Since(began); err != nil || after > 100 || float64(after) < 100-passed.Seconds() {
		t.Errorf("Retry-After is %d (%v), with a request in 100 s, %v after the first request", after, err, passed)
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
	testsupport.Long(t)
	// Every fourth request on a used connection is lost with it, and is sent again.
	s := e2e.StartSSP(t, sspsim.Options{Behaviour: sspsim.Behaviour{Connections: sspsim.Connections{MaxRequests: 4}}})
	other := e2e.Healthy(t)
	const limit, burst = 10.0, 30.0 // any machine sends more than that
	ab := e2e.Start(t, fmt.Sprintf(`
ssps:
  - {name: openx, endpoints: [%q], qps: {limit: %v, burst: %v}, breaker: {enabled: false}}
  - {name: other, endpoints: [%q]}
routes:
  - {name: single, match: {path: /single}, ssps: [openx]}
  - {name: legs, match: {path: /legs}, mode: parallel-all, ssps: [openx, other]}
`, s.URL(), limit, burst, other.URL()))
	// At the first refusal after 5 s the bucket is empty. Until then tokens were lost only if the
	// machine stalled for longer than the bucket takes to fill. The time without a response bounds
	// their number.
	var (
		mu      sync.Mutex
		began   = time.Now()
		last    = began
		lost    float64
		refused time.Time // when the first request was sent that found the bucket empty after 5 s
	)
	ended := func(a *e2e.Response) bool {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		lost += max(0, limit*now.Sub(last).Seconds()-burst)
		last = now
		if sent := now.Add(-a.Took); refused.IsZero() && a.Header("X-Adbuffer-Source") == "proxy/qps_limit" && sent.Sub(began) > 5*time.Second {
			refused = sent
		}
		return !refused.IsZero()
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
	// An attempt that was lost with its connection has had a token, and may not have reached the SSP.
	m := ab.Scrape()
	unseen := m.Value("adbuffer_ssp_requests_total", "ssp=openx", "outcome=conn_lost") +
		m.Value("adbuffer_retries_total", "ssp=openx", "kind=stale") + m.Value("adbuffer_retries_total", "ssp=openx", "kind=not_sent")
	// Requests in flight at the refusal may have had tokens until all workers ended.
	sent, least, most := float64(s.Counters().Requests), limit*refused.Sub(began).Seconds()+burst-lost, limit*time.Since(began).Seconds()+burst
	t.Logf("%.0f requests sent and %.0f attempts lost, of which the limit allows %.0f to %.0f; %.0f tokens were lost while the machine stalled", sent, unseen, least, most, lost)
	if sent > most*1.05 || sent+unseen < least*0.95 {
		t.Errorf("%.0f requests sent and %.0f attempts lost, want %.0f to %.0f within 5 %%", sent, unseen, least, most)
	}
	if m.Value("adbuffer_qps_limited_total", "ssp=openx") == 0 {
		t.Error("the limit was never reached")
	}
}
