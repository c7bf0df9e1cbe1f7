package drain

import (
	"syscall"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

func TestADrainServesRequestsInFlightAndExitsWith0(t *testing.T) {
	t.Parallel()
	s := e2e.StartGated(t, sspsim.Options{})
	ab := e2e.Start(t, e2e.Single(s.URL()), "ADBUFFER_SERVER_DRAIN_DELAY=10m")
	busy, idle := ab.Dial(), ab.Dial()
	busy.Send(e2e.Request("POST", "/fillbuffer", `{"id":"1"}`))
	e2e.AwaitInFlight(t, s.SSP, 1)

	ab.Signal(syscall.SIGTERM)
	// The process is not ready at once, but alive, and accepts connections during the delay.
	testsupport.Eventually(t, "/readyz responds with 503", func() bool { status, body := ab.AskAdmin("/readyz"); return status == 503 && body == "draining\n" })
	if status, _ := ab.AskAdmin("/healthz"); status != 200 {
		t.Errorf("/healthz responds with %d, want 200", status)
	}
	s.Open()
	for _, c := range []*e2e.Client{busy, idle, ab.Dial()} {
		if c != busy {
			c.Send(e2e.Request("GET", "/fillbuffer", ""))
		}
		testsupport.Equal(t, c.Read("GET").WantFill("openx").Header("Connection"), "close", "Connection: %q during the drain")
		c.WantClosed()
	}
	ab.AwaitMetric(0, "adbuffer_in_flight_requests")
	ab.Terminate(0) // ends the delay
	testsupport.Eventually(t, "the connections to the SSP are closed", func() bool { return s.Counters().OpenConnections == 0 })
}

func TestADrainWaitsForRequestsInFlightAfterItStoppedAccepting(t *testing.T) {
	t.Parallel()
	s := e2e.StartGated(t, sspsim.Options{})
	ab := e2e.Start(t, e2e.Single(s.URL()))
	busy, idle, kept := ab.Dial(), ab.Dial(), ab.Dial()
	busy.Send(e2e.Request("GET", "/fillbuffer", ""))
	e2e.AwaitInFlight(t, s.SSP, 1)
	kept.Send(e2e.Request("GET", "/nowhere", "")) // a request has been served before
	kept.Read("GET").WantStatus("no route", 404)

	ab.Signal(syscall.SIGTERM)
	testsupport.Eventually(t, "the listener is closed", func() bool {
		c := &e2e.Worker{Process: ab}
		defer c.Close()
		_, err := c.Exchange("GET", "/nowhere", "")
		return err != nil
	})
	kept.WantClosed() // idle clients are closed
	idle.WantClosed()
	testsupport.True(t, !ab.HasEnded(), "it did not wait")
	s.Open()
	testsupport.Equal(t, busy.Read("GET").WantFill("openx").Header("Connection"), "close", "Connection: %q")
	busy.WantClosed()
	ab.WantExit(0)
}

func TestADrainThatCutsRequestsExitsWith1(t *testing.T) {
	t.Parallel()
	s := e2e.StartGated(t, sspsim.Options{})
	ab := e2e.Start(t, "server: {drain: {timeout: 200ms}}\n"+e2e.Single(s.URL()))
	busy := ab.Dial()
	busy.Send(e2e.Request("GET", "/fillbuffer", ""))
	e2e.AwaitInFlight(t, s.SSP, 1)
	ab.Terminate(1)
	busy.WantClosed()
	line, ok := ab.Log.Line("stopped, with requests cut; see server.drain.timeout")
	testsupport.True(t, ok && line["cut"] == 1.0, "the log does not name the requests that were cut:\n%s", ab.Log)
}

func TestASecondSignalEndsTheWait(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		delay string
		code  int
		busy  bool
	}{
		{"during the delay, with nothing in flight", "10m", 0, false},
		{"during the delay", "10m", 1, true},
		{"after the delay", "0s", 1, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := e2e.StartGated(t, sspsim.Options{})
			ab := e2e.Start(t, "server: {drain: {timeout: 1h}}\n"+e2e.Single(s.URL()), "ADBUFFER_SERVER_DRAIN_DELAY="+row.delay)
			if row.busy {
				ab.Dial().Send(e2e.Request("GET", "/fillbuffer", ""))
				e2e.AwaitInFlight(t, s.SSP, 1)
			}
			ab.BeginDrain()
			testsupport.True(t, !ab.HasEnded() || row.delay == "0s", "it did not wait")
			ab.Signal(syscall.SIGINT)
			ab.WantExit(row.code)
		})
	}
}

// Load continues while the service stops. Every request on an accepted connection gets its
// response.
func TestADrainUnderLoadLosesNoRequest(t *testing.T) {
	t.Parallel()
	s := e2e.SSPWith(t, sspsim.Behaviour{Latency: sspsim.Lognormal(2e6, 20e6)})
	ab := e2e.Start(t, e2e.Single(s.URL()), drainDelayed)
	ab.ExitIsTested = true
	var all e2e.Tally
	ab.Concurrently(20, func(w *e2e.Worker) error {
		c := drainedClient{Worker: w}
		for i := 0; ; i++ {
			if w.Id == 0 && i == 20 {
				ab.Signal(syscall.SIGTERM)
			}
			a, fresh, err := c.get()
			switch {
			case err == nil:
				all.Add(a)
			case fresh:
				return nil // the listener is closed
			default:
				return err
			}
		}
	})
	ab.WantExit(0)
	t.Logf("%s: %v", "responses", &all)
	testsupport.Equal(t, all.Of("ssp/openx 200"), all.Total(), "some requests did not get the SSP's response: %v")
}
