package limits

import (
	"fmt"
	"testing"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
)

func TestAFullQueueIsPendingFull(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		pending int
		names   []string
	}{
		{"no queue", 0, []string{"2 of 2", "0 of 0", "pool.max_conns", "pool.max_pending"}},
		{"a queue of one", 1, []string{"2 of 2", "1 of 1", "pool.max_conns", "pool.max_pending"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := e2e.StartGated(t, sspsim.Options{})
			ab := e2e.Start(t, e2e.Single(s.URL(), fmt.Sprintf("pool: {max_conns: 2, max_pending: %d}", row.pending)))
			var waiting []*e2e.Client
			for i := range 2 + row.pending {
				c := ab.Dial()
				c.Send(e2e.Request("GET", "/fillbuffer", ""))
				waiting = append(waiting, c)
				if i < 2 {
					e2e.AwaitInFlight(t, s.SSP, int64(i+1))
				} else {
					ab.AwaitMetric(float64(i-1), "adbuffer_pool_pending_requests")
				}
			}
			ab.WantMetric(1, "adbuffer_pool_saturation_ratio", "ssp=openx")
			ab.WantRefusal("one more", e2e.Refusal{Status: 503, Reason: "pending_full", SSP: "openx", Names: row.names}, func() *e2e.Response { return ab.Get("/fillbuffer") })
			s.Open()
			for _, c := range waiting {
				c.Read("GET").WantFill("openx")
			}
			ab.AwaitMetric(0, "adbuffer_pool_saturation_ratio", "ssp=openx")
			if n := ab.Metric("adbuffer_pool_acquire_seconds_count", "outcome=full"); n != 1 {
				t.Errorf("%v requests found the queue full, want 1", n)
			}
		})
	}
}

func TestAWaitThatIsTooLongIsPendingTimeout(t *testing.T) {
	t.Parallel()
	s := e2e.StartGated(t, sspsim.Options{})
	ab := e2e.Start(t, e2e.Single(s.URL(), "pool: {max_conns: 1, pending_timeout: 2s}"))
	busy := ab.Dial()
	busy.Send(e2e.Request("GET", "/fillbuffer", ""))
	e2e.AwaitInFlight(t, s.SSP, 1)
	want := e2e.Refusal{Status: 503, Reason: "pending_timeout", SSP: "openx", Names: []string{"2s", "pool.pending_timeout", "pool.max_conns"}}
	ab.WantRefusal("no place", want, func() *e2e.Response { return ab.Get("/fillbuffer") })
	// A wait that the deadline ends is deadline, never pending_timeout.
	ab.WantRefusal("deadline first", e2e.Refusal{Status: 504, Reason: "deadline", SSP: "openx", Names: []string{"pool.max_conns"}},
		func() *e2e.Response { return ab.Get("/fillbuffer", "X-Adbuffer-Timeout-Ms: 600") })
	s.Open()
	busy.Read("GET").WantFill("openx")
	ab.Get("/fillbuffer").WantFill("openx")
	ab.WantMetric(2, "adbuffer_pool_acquire_seconds_count", "outcome=timeout")
}
