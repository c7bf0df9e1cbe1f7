package failing

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
)

func TestALateGetIsSentOnceMoreAndAPostNever(t *testing.T) {
	t.Parallel()
	var holds atomic.Bool
	gate := make(chan struct{})
	s := e2e.StartSSP(t, sspsim.Options{OnRequest: func(q *sspsim.Request) {
		if q.Method == "GET" && holds.Load() {
			<-gate
		}
	}})
	open := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open)
	r := e2e.StartOTLPReceiver(t)
	ab := e2e.Start(t, e2e.Single(s.URL(), "hedge: {enabled: true}"), "ADBUFFER_TRACING_ENDPOINT="+r.URL, "ADBUFFER_TRACING_SAMPLE=0")
	ab.Concurrently(4, func(w *e2e.Worker) error {
		// adbuffer must first learn the usual latency: 200 responses, and a quarter of a second.
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
	before := ab.Metric("adbuffer_retries_total", "kind=hedge")
	s.ResetCounters()
	holds.Store(true)
	c.Send(e2e.Request("GET", "/fillbuffer", "", "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"))
	e2e.AwaitInFlight(t, s, 2)
	open()
	c.Read("GET").WantFill("openx")
	e2e.WantRequests(t, s, 2)
	ab.AwaitSpans()
	kinds := make(map[string]string)
	for _, span := range r.Named("attempt") {
		if string(span.ParentSpanId) != string(r.Named("ssp openx")[0].SpanId) {
			t.Error("an attempt is not below its leg")
		}
		kinds[e2e.Attribute(span, "adbuffer.retry")] = e2e.Attribute(span, "adbuffer.outcome")
	}
	// The slower attempt is cancelled, or has already ended.
	if outcomes := kinds[""] + " " + kinds["hedge"]; len(kinds) != 2 || !slices.Contains([]string{"fill cancelled", "cancelled fill", "fill fill"}, outcomes) {
		t.Errorf("attempts %v, want a first one and a hedge", kinds)
	}
	ab.WantMetric(before+1, "adbuffer_retries_total", "ssp=openx", "kind=hedge")

	e2e.SetBehaviour(t, s, sspsim.Behaviour{Latency: sspsim.Constant(3 * time.Second)})
	s.ResetCounters()
	c.Post("/fillbuffer", `{"id":"1"}`).WantFill("openx")
	e2e.WantRequests(t, s, 1)
	ab.WantMetric(before+1, "adbuffer_retries_total", "ssp=openx", "kind=hedge")
}
