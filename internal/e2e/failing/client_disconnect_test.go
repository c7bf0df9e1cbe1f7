package failing

import (
	"fmt"
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

// If the client disconnects after its request was sent, the SSP's connection stays usable.
func TestAClientThatDisconnectsFailsNoOtherRequest(t *testing.T) {
	t.Parallel()
	s := e2e.StartGated(t, sspsim.Options{Behaviour: sspsim.Behaviour{Response: sspsim.Response{Echo: true}}})
	ab := e2e.Start(t, e2e.Single(s.URL(), "pool: {max_conns: 4}"))
	var leavers []*e2e.Client
	for range 4 {
		c := ab.Dial()
		c.Send(e2e.Request("GET", "/fillbuffer?cb=gone", ""))
		leavers = append(leavers, c)
	}
	e2e.AwaitInFlight(t, s.SSP, 4)
	for _, c := range leavers {
		c.Close()
	}
	ab.AwaitMetric(4, "adbuffer_requests_total", "route=default", "outcome=client_gone")
	s.Open()
	c := ab.Dial()
	for i := range 50 {
		id := fmt.Sprintf("%d", i)
		if got := c.Get("/fillbuffer?cb=" + id).WantFill("openx").Header("X-Echo-Cb"); got != id {
			t.Fatalf("request %s was given the response to %s", id, got)
		}
	}
}
