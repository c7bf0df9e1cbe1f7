package endpoints

import (
	"fmt"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// No connection stays open for the next request. The requests are shared by weight, 3 to 1, all the same.
func TestWeightsHoldWithoutConnectionsThatStay(t *testing.T) {
	for name, c := range map[string]struct {
		behaviour sspsim.Behaviour
		pool      string
	}{
		"Connection: close":     {behaviour: sspsim.Behaviour{Connections: sspsim.Connections{MaxRequests: 1, Announce: true}}},
		"max_requests_per_conn": {pool: "max_requests_per_conn: 1"},
		"max_idle":              {pool: "max_idle: 0"},
	} {
		for _, clients := range []int{1, 8} {
			t.Run(fmt.Sprint(name, " ", clients), func(t *testing.T) {
				a, b := e2e.SSPWith(t, c.behaviour), e2e.SSPWith(t, c.behaviour)
				ab := e2e.Start(t, fmt.Sprintf(`
ssps:
  - name: openx
    endpoints: [{url: %q, weight: 3}, %q]
    pool: {%s}
routes: [{name: default, match: {path: /fillbuffer}, ssps: [openx]}]
`, a.URL(), b.URL(), c.pool))
				testsupport.Equal(t, filledBy(ab, clients, 200), 200, "%d of 200 requests got an ad")
				testsupport.Between(t, a.Counters().Requests, 140, 160, "the endpoint of weight 3 served %d of 200 requests")
			})
		}
	}
}
