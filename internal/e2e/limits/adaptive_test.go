package limits

import (
	"testing"
	"time"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

func TestTheAdaptiveLimitFallsWhenTheSSPSlowsAndRecoversAfter(t *testing.T) {
	t.Parallel()
	testsupport.Long(t)
	// Both are long, since a slow machine adds to the latency that adbuffer measures.
	fast := sspsim.Behaviour{Latency: sspsim.Constant(200 * time.Millisecond)}
	slow := sspsim.Behaviour{Latency: sspsim.Constant(1600 * time.Millisecond)}
	s := e2e.SSPWith(t, fast)
	ab := e2e.Start(t, e2e.Single(s.URL(), "max_in_flight: 64", "adaptive: {enabled: true, floor: 4}"))
	limit := func() float64 { return ab.Metric("adbuffer_concurrency_limit", "ssp=openx") }
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ab.Concurrently(32, func(w *e2e.Worker) error {
			for {
				select {
				case <-done:
					return nil
				default:
				}
				a, err := w.Exchange("GET", "/fillbuffer", "")
				if err != nil {
					return err
				}
				if a.Status == 503 {
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}()
	defer func() { close(done); <-ended }()

	e2e.AwaitCounters(t, s, "the SSP is busy", func(n sspsim.Counters) bool { return n.Responded > 500 })
	testsupport.Eventually(t, "the limit is at least the 32 in flight while the SSP is fast", func() bool { return limit() >= 32 })
	healthy := limit()
	e2e.SetBehaviour(t, s, slow)
	testsupport.Eventually(t, "the limit falls below 16", func() bool { return limit() < 16 })
	if n := limit(); n < 4 {
		t.Errorf("the limit fell to %v, below its floor of 4", n)
	}
	ab.AwaitMetricAbove(0, "adbuffer_ssp_requests_total", "ssp=openx", "outcome=overloaded")
	e2e.SetBehaviour(t, s, fast)
	testsupport.Eventually(t, "the limit recovers", func() bool { return limit() >= 32 })
	t.Logf("limit %v, then below 16, then %v", healthy, limit())
}
