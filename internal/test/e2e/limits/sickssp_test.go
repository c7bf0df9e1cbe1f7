package limits

import (
	"fmt"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// One SSP of five fails or is slow. Its requests get an error in time. Requests to the other SSPs get their
// responses.
func TestASickSSPCostsOnlyItsOwnRequests(t *testing.T) {
	t.Parallel()
	for _, sick := range []struct {
		name    string
		faults  sspsim.Faults
		latency time.Duration
	}{
		{name: "refuses", faults: sspsim.Faults{Refuse: true}},
		{name: "black-holes", faults: sspsim.Faults{BlackHole: true}},
		{name: "hangs after accept", faults: sspsim.Faults{Hang: sspsim.Always}},
		{name: "reads and does not respond", faults: sspsim.Faults{Stall: sspsim.Always}},
		{name: "resets", faults: sspsim.Faults{Reset: sspsim.Always}},
		{name: "half responses", faults: sspsim.Faults{CutBody: sspsim.Every(2), CutHead: sspsim.Always}},
		{name: "responds with 503", faults: sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always}}},
		{name: "drips", faults: sspsim.Faults{Drip: sspsim.Drip{Chance: sspsim.Always}}},
		{name: "takes two seconds", latency: 2 * time.Second},
	} {
		t.Run(sick.name, func(t *testing.T) {
			t.Parallel()
			config := "ssps:\n"
			routes := "routes:\n"
			for i := range 5 {
				b, connect := sspsim.Behaviour{Latency: sspsim.Constant(20 * time.Millisecond)}, "10s"
				if i == 4 {
					b, connect = sspsim.Behaviour{Faults: sick.faults, Latency: sspsim.Constant(sick.latency)}, "250ms"
				}
				s := e2e.StartSSP(t, sspsim.Options{Behaviour: b})
				config += fmt.Sprintf("  - {name: s%d, endpoints: [%q], timeouts: {connect: %s}}\n", i, s.URL(), connect)
				routes += fmt.Sprintf("  - {name: s%[1]d, match: {path: /s%[1]d}, ssps: [s%[1]d]}\n", i)
			}
			ab := e2e.Start(t, config+routes)
			var others, own e2e.Tally
			began := time.Now()
			ab.Concurrently(20, func(w *e2e.Worker) error {
				ssp := w.Id % 5
				for time.Since(began) < 1500*time.Millisecond {
					field := "X-Adbuffer-Timeout-Ms: 20000"
					if ssp == 4 {
						field = "X-Adbuffer-Timeout-Ms: 150"
					}
					a, err := w.Exchange("GET", fmt.Sprintf("/s%d", ssp), "", field)
					if err != nil {
						return err
					}
					if ssp != 4 {
						others.Add(a)
						if a.Status != 200 {
							return fmt.Errorf("s%d: %d %s", ssp, a.Status, a.Body)
						}
						continue
					}
					own.Add(a)
					if a.Status < 500 {
						return fmt.Errorf("the sick SSP's request ended with %d", a.Status)
					}
					time.Sleep(5 * time.Millisecond)
				}
				return nil
			})
			t.Logf("the others: %v, the sick one: %v", &others, &own)
			testsupport.True(t, own.Total() != 0 && others.Total() != 0, "no request was sent")
		})
	}
}
