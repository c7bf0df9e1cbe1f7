package endpoints

import (
	"fmt"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// A mirror receives copies of requests. If it never accepts a connection, it delays no request, and
// its metric shows it.
func TestMirror(t *testing.T) {
	t.Parallel()
	main, partner := e2e.Healthy(t), e2e.Healthy(t)
	hole := testsupport.Listen(t) // it never accepts and never responds
	ab := e2e.Start(t, fmt.Sprintf(`
ssps:
  - {name: openx, endpoints: [%q]}
  - {name: partner, endpoints: [%q]}
  - {name: hole, endpoints: ["http://%s/bid"], timeouts: {request: 1s}, breaker: {enabled: false}}
routes:
  - {name: good, match: {path: /good}, ssps: [openx], mirror: {ssp: partner, share: 1}}
  - {name: bad, match: {path: /bad}, ssps: [openx], mirror: {ssp: hole, share: 1}}
`, main.URL(), partner.URL(), hole.Addr()))
	ab.WantMetric(0, "adbuffer_mirrored_total", "route=bad", "ssp=hole", "outcome=dropped")
	c := ab.Dial()
	for i := range 50 {
		c.Post("/good", fmt.Sprintf(`{"id":"%d"}`, i)).WantFill("openx")
		c.Post("/bad", fmt.Sprintf(`{"id":"%d"}`, i)).WantFill("openx")
	}
	ab.AwaitMetric(50, "adbuffer_mirrored_total", "route=good", "ssp=partner", "outcome=fill")
	testsupport.Eventually(t, "all copies for the hole ended", func() bool {
		m := ab.Scrape()
		return m.Value("adbuffer_mirrored_total", "route=bad", "outcome=deadline")+m.Value("adbuffer_mirrored_total", "route=bad", "outcome=dropped") == 50
	})
	ab.AwaitMetric(0, "adbuffer_buffered_bytes")
}
