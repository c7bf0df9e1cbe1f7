package limits

import (
	"fmt"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// SSPs fail or are slow, each in another way. Their requests get an error in time. Requests to healthy SSPs get
// their responses.
func TestASickSSPCostsOnlyItsOwnRequests(t *testing.T) {
	t.Parallel()
	sick := []struct {
		name    string
		faults  sspsim.Faults
		latency time.Duration
	}{
		{name: "refuses", faults: sspsim.Faults{Refuse: true}},
		{name: "black-holes", faults: sspsim.Faults{BlackHole: true}},
		{name: "hangs-after-accept", faults: sspsim.Faults{Hang: sspsim.Always}},
		{name: "does-not-respond", faults: sspsim.Faults{Stall: sspsim.Always}},
		{name: "resets", faults: sspsim.Faults{Reset: sspsim.Always}},
		{name: "half-responses", faults: sspsim.Faults{CutBody: sspsim.Every(2), CutHead: sspsim.Always}},
		{name: "responds-with-503", faults: sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always}}},
		{name: "drips", faults: sspsim.Faults{Drip: sspsim.Drip{Chance: sspsim.Always}}},
		{name: "takes-two-seconds", latency: 2 * time.Second},
	}
	config, routes := "ssps:\n", "routes:\n"
	add := func(name, connect string, b sspsim.Behaviour) {
		config += fmt.Sprintf("  - {name: %s, endpoints: [%q], timeouts: {connect: %s}}\n", name, e2e.SSPWith(t, b).URL(), connect)
		routes += fmt.Sprintf("  - {name: %[1]s, match: {path: /%[1]s}, ssps: [%[1]s]}\n", name)
	}
	for _, s := range sick {
		add(s.name, "250ms", sspsim.Behaviour{Faults: s.faults, Latency: sspsim.Constant(s.latency)})
	}
	for i := range 2 {
		add(fmt.Sprint("healthy", i), "10s", sspsim.Behaviour{Latency: sspsim.Constant(20 * time.Millisecond)})
	}
	ab := e2e.Start(t, config+routes)
	var others e2e.Tally
	own := make([]e2e.Tally, len(sick))
	began := time.Now()
	ab.Concurrently(4*(len(sick)+2), func(w *e2e.Worker) error {
		for n := w.Id / 4; time.Since(began) < 1500*time.Millisecond; {
			if n >= len(sick) {
				a, err := w.Exchange("GET", fmt.Sprint("/healthy", n-len(sick)), "", "X-Adbuffer-Timeout-Ms: 20000")
				if err != nil {
					return err
				}
				if others.Add(a); a.Status != 200 {
					return fmt.Errorf("a healthy SSP: %d %s", a.Status, a.Body)
				}
				continue
			}
			a, err := w.Exchange("GET", "/"+sick[n].name, "", "X-Adbuffer-Timeout-Ms: 150")
			if err != nil {
				return err
			}
			if own[n].Add(a); a.Status < 500 {
				return fmt.Errorf("an SSP that %s: its request ended with %d", sick[n].name, a.Status)
			}
			time.Sleep(5 * time.Millisecond)
		}
		return nil
	})
	testsupport.True(t, others.Total() != 0, "no request was sent to a healthy SSP")
	for n := range own {
		t.Logf("an SSP that %s: %v", sick[n].name, &own[n])
		testsupport.True(t, own[n].Total() != 0, "no request was sent to the SSP that %s", sick[n].name)
	}
}
