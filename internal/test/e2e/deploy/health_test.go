package deploy

import (
	"fmt"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// min_idle connections are open before /readyz responds 200. An SSP that is down delays it by at
// most warmup_timeout.
func TestReadinessWaitsForWarmPoolsUpToWarmupTimeout(t *testing.T) {
	t.Parallel()
	warm := e2e.Healthy(t)
	ab := e2e.Start(t, fmt.Sprintf(`
admin: {warmup_timeout: 5s}
ssps:
  - {name: warm, endpoints: [%q], pool: {min_idle: 5}}
  - {name: down, endpoints: ["http://%s/bid"], pool: {min_idle: 1}}
routes:
  - {name: default, match: {path: /fillbuffer}, ssps: [warm, down], client_choice: true}
`, warm.URL(), testsupport.FreeAddr(t)))
	testsupport.True(t, ab.Pool("warm").Warm && !ab.Pool("down").Warm, "warm is %v, down is %v", ab.Pool("warm").Warm, ab.Pool("down").Warm)
	testsupport.Eventually(t, "the SSP has min_idle connections", func() bool { return warm.Counters().OpenConnections == 5 })
	testsupport.Eventually(t, "the log warns of the SSP that is down", func() bool {
		line, _ := ab.Log.Line("not all min_idle connections could be opened in time; see pool.min_idle and admin.warmup_timeout")
		return line["ssp"] == "down"
	})
	ab.Get("/fillbuffer").WantFill("warm")
	ab.Get("/fillbuffer/down").WantStatus("down", 502)
	if status, _ := ab.AskAdmin("/readyz"); status != 200 {
		t.Errorf("/readyz responds with %d because of an SSP", status)
	}
	testsupport.Equal(t, warm.Counters().Connections, 5, "%d connections were dialled")
}
