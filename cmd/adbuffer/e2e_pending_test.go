package main

import (
	"testing"

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
			s := startGated(t, sspsim.Options{})
			ab := start(t, single(s.URL(), sprintf("pool: {max_conns: 2, max_pending: %d}", row.pending)))
			var waiting []*client
			for i := range 2 + row.pending {
				c := ab.dial()
				c.send(request("GET", "/fillbuffer", ""))
				waiting = append(waiting, c)
				if i < 2 {
					awaitInFlight(t, s.SSP, int64(i+1))
				} else {
					ab.awaitMetric(float64(i-1), "adbuffer_pool_pending_requests")
				}
			}
			ab.wantMetric(1, "adbuffer_pool_saturation_ratio", "ssp=openx")
			ab.wantRefusal("one more", refusal{status: 503, reason: "pending_full", ssp: "openx", names: row.names}, func() *answer { return ab.get("/fillbuffer") })
			s.open()
			for _, c := range waiting {
				c.read("GET").wantFill("openx")
			}
			ab.awaitMetric(0, "adbuffer_pool_saturation_ratio", "ssp=openx")
			if n := ab.metric("adbuffer_pool_acquire_seconds_count", "outcome=full"); n != 1 {
				t.Errorf("%v requests found the queue full, want 1", n)
			}
		})
	}
}

func TestAWaitThatIsTooLongIsPendingTimeout(t *testing.T) {
	t.Parallel()
	s := startGated(t, sspsim.Options{})
	ab := start(t, single(s.URL(), "pool: {max_conns: 1, pending_timeout: 80ms}"), "ADBUFFER_SSP_DEFAULTS_POOL_PENDING_TIMEOUT=80ms")
	busy := ab.dial()
	busy.send(request("GET", "/fillbuffer", ""))
	awaitInFlight(t, s.SSP, 1)
	want := refusal{status: 503, reason: "pending_timeout", ssp: "openx", names: []string{"80ms", "pool.pending_timeout", "pool.max_conns"}}
	ab.wantRefusal("no place", want, func() *answer { return ab.get("/fillbuffer") })
	// A wait that the deadline ends is deadline, never pending_timeout.
	ab.wantRefusal("deadline first", refusal{status: 504, reason: "deadline", ssp: "openx", names: []string{"pool.max_conns"}},
		func() *answer { return ab.get("/fillbuffer", "X-Adbuffer-Timeout-Ms: 30") })
	s.open()
	busy.read("GET").wantFill("openx")
	ab.get("/fillbuffer").wantFill("openx")
	ab.wantMetric(2, "adbuffer_pool_acquire_seconds_count", "outcome=timeout")
}
