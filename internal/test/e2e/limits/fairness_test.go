package limits

import (
	"fmt"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// One publisher has filled the queue. While server.fairness.key is set, another publisher's request replaces the
// newest request of the first publisher, and gets its response before most of the others.
func TestFairnessMakesRoomForAnotherKey(t *testing.T) {
	t.Parallel()
	s := e2e.StartGated(t, sspsim.Options{})
	config := func(key string) string {
		return fmt.Sprintf(`
server: {fairness: {key: %q}}
deadline: {default: 60s, max: 60s}
ssps:
  - {name: a, endpoints: [%q], protocol: http1, pool: {max_conns: 1, max_pending: 16, pending_timeout: 60s}}
routes: [{name: default, match: {path: /fillbuffer}, ssps: [a]}]
`, key, s.URL())
	}
	const key = "header:X-Publisher"
	ab := e2e.Start(t, config(key))
	send := func(publisher string) *e2e.Client {
		c := ab.Dial()
		c.Send(e2e.Request("GET", "/fillbuffer", "", "X-Publisher: "+publisher))
		return c
	}
	all := []*e2e.Client{send("noisy")}
	e2e.AwaitInFlight(t, s.SSP, 1)
	for n := range 16 {
		all = append(all, send("noisy"))
		ab.AwaitMetric(float64(n+1), "adbuffer_pool_pending_requests", "ssp=a")
	}
	testsupport.Equal(t, ab.Pool("a").FairQueues, 8, "requests wait in %d queues")
	all = append(all, send("quiet"))
	ab.AwaitMetric(1, "adbuffer_fairness_evicted_total", "ssp=a")

	ab.Take(config(""))
	if res := send("quiet").Read("GET"); res.Status != 503 || strings.Contains(res.Body, "fairness") {
		t.Errorf("without fairness a full queue responds %d %s", res.Status, res.Body)
	}
	ab.Take(config(key))
	if _, x := ab.SendAdmin("POST", "/explain", "GET /fillbuffer HTTP/1.1\r\nHost: a\r\nX-Publisher: quiet\r\n\r\n"); !strings.Contains(x, `"fairness": "header:X-Publisher: quiet"`) {
		t.Errorf("explain says %s", x)
	}
	all = append(all, send("quiet"))
	ab.AwaitMetric(2, "adbuffer_fairness_evicted_total", "ssp=a")
	s.Open()
	refused := 0
	for i, c := range all {
		switch res := c.Read("GET"); {
		case res.Status == 503 && i < 17 && strings.Contains(res.Body, "16 of 16 requests waiting in the queue, and no other key had more requests there; see pool.max_conns, server.fairness.key and pool.max_pending"):
			refused++
		case res.Status != 200:
			t.Errorf("request %d got %d %s", i, res.Status, res.Body)
		}
	}
	testsupport.True(t, refused == 2, "%d requests of the noisy publisher were refused, want 2", refused)
	testsupport.Equal(t, ab.Pool("a").FairQueues, 0, "requests wait in %d queues in the end")
}
