package failing

import (
	"testing"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
)

// A client that disconnects while its request waits for a place costs the SSP nothing.
func TestARequestWhoseClientDisconnectsInTheQueueIsNotSent(t *testing.T) {
	t.Parallel()
	s := e2e.StartGated(t, sspsim.Options{})
	ab := e2e.Start(t, e2e.Single(s.URL(), "pool: {max_conns: 1}"))
	busy, leaver, stayer := ab.Dial(), ab.Dial(), ab.Dial()
	busy.Send(e2e.Request("GET", "/fillbuffer", ""))
	e2e.AwaitInFlight(t, s.SSP, 1)
	leaver.Send(e2e.Request("POST", "/fillbuffer", `{"id":"1"}`))
	ab.AwaitMetric(1, "adbuffer_pool_pending_requests")
	stayer.Send(e2e.Request("GET", "/fillbuffer", ""))
	ab.AwaitMetric(2, "adbuffer_pool_pending_requests")
	leaver.Close()
	ab.AwaitMetric(1, "adbuffer_requests_total", "route=default", "outcome=client_gone")
	s.Open()
	busy.Read("GET").WantFill("openx")
	stayer.Read("GET").WantFill("openx")
	ab.WantMetric(1, "adbuffer_ssp_requests_total", "ssp=openx", "outcome=client_gone")
	e2e.WantRequests(t, s.SSP, 2)
}
