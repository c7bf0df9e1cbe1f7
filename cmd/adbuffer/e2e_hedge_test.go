package main

import (
	"testing"
	"time"

	"adbuffer/internal/sspsim"
)

func TestALateGetIsSentOnceMoreAndAPostNever(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	ab := start(t, single(s.URL(), "hedge: {enabled: true}"))
	ab.concurrently(4, func(w *worker) error {
		// It must know how late is late: 200 answers, and a quarter of a second.
		for began := time.Now(); time.Since(began) < 600*time.Millisecond || s.Counters().Requests < 1000; {
			if _, err := w.exchange("GET", "/fillbuffer", ""); err != nil {
				return err
			}
		}
		return nil
	})
	if err := s.Set(sspsim.Behaviour{Latency: sspsim.Constant(time.Second)}); err != nil {
		t.Fatal(err)
	}
	c := ab.dial()
	before := ab.metric("adbuffer_retries_total", "kind=hedge")
	s.ResetCounters()
	c.get("/fillbuffer").wantFill("openx")
	wantAsked(t, s, 2)
	ab.wantMetric(before+1, "adbuffer_retries_total", "ssp=openx", "kind=hedge")

	s.ResetCounters()
	c.post("/fillbuffer", `{"id":"1"}`).wantFill("openx")
	wantAsked(t, s, 1)
	ab.wantMetric(before+1, "adbuffer_retries_total", "ssp=openx", "kind=hedge")
}
