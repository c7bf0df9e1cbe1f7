package limits

import (
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

func TestMaxInFlightIsEnforcedWithOverloaded(t *testing.T) {
	t.Parallel()
	s := e2e.StartGated(t, sspsim.Options{})
	ab := e2e.Start(t, "server: {max_in_flight: 2}\n"+e2e.Single(s.URL()))
	var busy []*e2e.Client
	for range 2 {
		c := ab.Dial()
		c.Send(e2e.Request("GET", "/fillbuffer", ""))
		busy = append(busy, c)
	}
	e2e.AwaitInFlight(t, s.SSP, 2)
	ab.WantMetric(2, "adbuffer_in_flight_requests")
	ab.WantMetric(2, "adbuffer_in_flight_requests_limit")
	c := ab.Dial()
	ab.WantRefusal("a third", e2e.Refusal{Status: 503, Reason: "overloaded", Route: "default", Names: []string{"2 of 2", "server.max_in_flight"}},
		func() *e2e.Response { return c.Get("/fillbuffer") })
	ab.WantMetric(1, "adbuffer_limit_refused_total", "limit=max_in_flight")
	// The log names the setting without the access log.
	testsupport.Eventually(t, "the log names server.max_in_flight", func() bool {
		line, ok := ab.Log.Line("a limit of the service was reached")
		return ok && line["see"] == "server.max_in_flight" && line["times"] == 1.0 && line["pid"] == float64(ab.Cmd.Process.Pid)
	})
	s.Open()
	for _, b := range busy {
		b.Read("GET").WantFill("openx")
	}
	c.Get("/fillbuffer").WantFill("openx")
}
