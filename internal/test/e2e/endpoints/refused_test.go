package endpoints

import (
	"fmt"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// One endpoint of two refuses all requests, by streams or by GOAWAY. The other one closes connections that are idle, and has
// none when a request comes. It serves each request all the same.
func TestRefusedRequestsGoToAnEndpointThatMustBeDialled(t *testing.T) {
	for name, faults := range map[string]sspsim.Faults{
		"REFUSED_STREAM": {RefuseStream: sspsim.Always},
		"GOAWAY":         {GoAway: sspsim.GoAway{Chance: sspsim.Always, Exclude: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sick := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.H2C, Behaviour: sspsim.Behaviour{Faults: faults}})
			closes := sspsim.Connections{IdleTimeout: sspsim.Duration(20 * time.Millisecond)}
			well := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.H2C, Behaviour: sspsim.Behaviour{Connections: closes}})
			ab := e2e.Start(t, fmt.Sprintf(`
ssps:
  - name: openx
    endpoints: [{url: %q, weight: 5}, %q]
    protocol: h2c
    retry: {max: 0} # a request is sent again once, at once
    ejection: {enabled: false}
    breaker: {enabled: false}
routes: [{name: default, match: {path: /fillbuffer}, ssps: [openx]}]
`, sick.URL(), well.URL()))
			ab.Concurrently(1, func(w *e2e.Worker) error {
				for range 12 {
					e2e.AwaitCounters(t, well, "no connection is open", func(c sspsim.Counters) bool { return c.OpenConnections == 0 })
					r, err := w.Exchange("GET", "/fillbuffer", "")
					if err != nil {
						return err
					}
					r.WantFill("openx")
				}
				return nil
			})
			e2e.WantRequests(t, well, 12)
			testsupport.AtLeast(t, sick.Counters().Unprocessed, 1, "the other endpoint refused %d requests")
		})
	}
}
