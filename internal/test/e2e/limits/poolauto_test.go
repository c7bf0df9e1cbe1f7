package limits

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// A pool of one place grows for 40 clients. What it decides is in the metrics, the log, /pools and explain.
// A reload keeps it.
func TestPoolSizesItself(t *testing.T) {
	t.Parallel()
	s := e2e.SSPWith(t, sspsim.Behaviour{Latency: sspsim.Constant(20 * time.Millisecond)})
	config := func(more string) string {
		return fmt.Sprintf(`
ssps:
  - {name: a, endpoints: [%q], protocol: http1, pool: {max_conns: 200, auto: {enabled: true, min_conns: 1}%s}}
routes: [{name: default, match: {path: /fillbuffer}, ssps: [a]}]
`, s.URL(), more)
	}
	ab := e2e.Start(t, config(""))
	clients := ab.StartTraffic(40, time.Millisecond, "/fillbuffer?")
	defer clients.Stop()
	ab.AwaitMetricAbove(24, "adbuffer_pool_auto_limit", "ssp=a")
	auto := ab.Pool("a").Auto
	testsupport.AtLeast(t, auto.Counts["grown"], 1, "%d growths")
	testsupport.Between(t, auto.Need, 20, 100, "the need is %d")
	ab.WantMetric(200, "adbuffer_pool_connections_limit", "ssp=a")
	_, pools := ab.AskAdmin("/pools")
	for _, want := range []string{`"kind": "grown"`, "The pool sizes itself (pool.auto)"} {
		testsupport.True(t, strings.Contains(pools, want), "/pools lacks %q", want)
	}
	testsupport.Eventually(t, "the log has the decision", func() bool { return strings.Contains(ab.Log.String(), "pool sized itself") })
	before := ab.Metric("adbuffer_pool_auto_limit", "ssp=a")
	ab.Take(config(", max_idle: 150"))
	testsupport.AtLeast(t, ab.Metric("adbuffer_pool_auto_limit", "ssp=a"), before/2, "a reload made the limit %v, from %v", before)
}
