package main

import (
	"testing"

	"adbuffer/internal/sspsim"
)

// A client that leaves while its request waits for a place costs the SSP nothing.
func TestARequestWhoseClientLeftInTheQueueIsNotSent(t *testing.T) {
	t.Parallel()
	s := startGated(t, sspsim.Options{})
	ab := start(t, single(s.URL(), "pool: {max_conns: 1}"))
	busy, leaver, stayer := ab.dial(), ab.dial(), ab.dial()
	busy.send(request("GET", "/fillbuffer", ""))
	awaitInFlight(t, s.SSP, 1)
	leaver.send(request("POST", "/fillbuffer", `{"id":"1"}`))
	ab.awaitMetric(1, "adbuffer_pool_pending_requests")
	stayer.send(request("GET", "/fillbuffer", ""))
	ab.awaitMetric(2, "adbuffer_pool_pending_requests")
	leaver.close()
	s.open()
	busy.read("GET").wantFill("openx")
	stayer.read("GET").wantFill("openx")
	ab.awaitMetric(1, "adbuffer_requests_total", "route=default", "outcome=client_gone")
	ab.wantMetric(1, "adbuffer_ssp_requests_total", "ssp=openx", "outcome=client_gone")
	wantAsked(t, s.SSP, 2)
}

// One that leaves after its request was sent leaves the SSP's connection usable.
func TestAClientThatLeavesHarmsNoOtherRequest(t *testing.T) {
	t.Parallel()
	s := startGated(t, sspsim.Options{Behaviour: sspsim.Behaviour{Answer: sspsim.Answer{Echo: true}}})
	ab := start(t, single(s.URL(), "pool: {max_conns: 4}"))
	for range 4 {
		c := ab.dial()
		c.send(request("GET", "/fillbuffer?cb=gone", ""))
		defer c.close()
	}
	awaitInFlight(t, s.SSP, 4)
	s.open()
	c := ab.dial()
	for i := range 50 {
		id := sprintf("%d", i)
		if got := c.get("/fillbuffer?cb=" + id).wantFill("openx").header("X-Echo-Cb"); got != id {
			t.Fatalf("request %s was given the answer to %s", id, got)
		}
	}
}
