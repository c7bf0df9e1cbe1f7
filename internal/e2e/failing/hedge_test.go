package failing

import (
	"testing"
	"time"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
)

func TestALateGetIsSentOnceMoreAndAPostNever(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, e2e.Single(s.URL(), "hedge: {enabled: true}"))
	ab.Concurrently(4, func(w *e2e.Worker) error {
		// It must know how late is late: 200 responses, and a quarter of a second.
		for began := time.Now(); time.Since(began) < 600*time.Millisecond || s.Counters().Requests < 1000; {
			if _, err := w.Exchange("GET", "/fillbuffer", ""); err != nil {
				return err
			}
		}
		return nil
	})
	// Hedges are paid from the budget of retries, and a slow machine makes many requests
	// late. POSTs fill the budget again: it holds 10, and each POST adds a fifth.
	c := ab.Dial()
	for range 60 {
		c.Post("/fillbuffer", `{"id":"1"}`).WantFill("openx")
	}
	if err := s.Set(sspsim.Behaviour{Latency: sspsim.Constant(3 * time.Second)}); err != nil {
		t.Fatal(err)
	}
	before := ab.Metric("adbuffer_retries_total", "kind=hedge")
	s.ResetCounters()
	c.Get("/fillbuffer").WantFill("openx")
	e2e.WantRequests(t, s, 2)
	ab.WantMetric(before+1, "adbuffer_retries_total", "ssp=openx", "kind=hedge")

	s.ResetCounters()
	c.Post("/fillbuffer", `{"id":"1"}`).WantFill("openx")
	e2e.WantRequests(t, s, 1)
	ab.WantMetric(before+1, "adbuffer_retries_total", "ssp=openx", "kind=hedge")
}
