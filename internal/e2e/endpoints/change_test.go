package endpoints

import (
	"fmt"
	"testing"
	"time"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

// list is a configuration of openx with these endpoints.
func list(ssps ...*sspsim.SSP) string {
	urls := ""
	for _, s := range ssps {
		urls += fmt.Sprintf("%q, ", s.URL())
	}
	return fmt.Sprintf(`
ssps: [{name: openx, endpoints: [%s], ejection: {enabled: false}, pool: {idle_timeout: 10m, max_age: 1h}}]
routes: [{name: default, match: {path: /fillbuffer}, ssps: [openx]}]
`, urls)
}

// Under load, an operator drains, disables, adds and removes endpoints, and changes weights. No
// request fails, and the endpoint that stays keeps its connections.
func TestNoChangeUnderLoadFailsARequest(t *testing.T) {
	t.Parallel()
	var ssps [3]*sspsim.SSP
	var names [3]string
	for i := range ssps {
		ssps[i] = e2e.SSPWith(t, sspsim.Behaviour{Latency: sspsim.Constant(4 * time.Millisecond)})
		names[i] = hostPort(t, ssps[i])
	}
	a, b, c := ssps[0], ssps[1], ssps[2]
	ab := e2e.StartReloadable(t, list(a, b))
	y := ab.StartTraffic(10, 0, "/fillbuffer?n=", "POST /fillbuffer?p=") // 2 000 requests/s if the machine is fast enough
	y.AwaitSent(t, 500)
	endpoint := func(i int, what, body string) {
		t.Helper()
		put(t, ab.Process, "/ssps/openx/endpoints/"+names[i]+"/"+what, body)
		y.AwaitSent(t, 300)
	}
	endpoint(1, "state", `{"state":"draining"}`)
	endpoint(1, "state", `{"state":"enabled"}`)
	endpoint(0, "state", `{"state":"disabled"}`)
	endpoint(0, "state", `{"state":"enabled"}`)
	endpoint(1, "weight", `{"weight":9}`)

	kept := a.Counters().Connections
	for _, next := range [][]*sspsim.SSP{{a, b, c}, {a, c}, {c, a}, {a}, {b, a, c}, {a, b}} {
		ab.Take(list(next...))
		y.AwaitSent(t, 500)
		for _, s := range next {
			before := s.Counters().Requests
			testsupport.Eventually(t, "each endpoint gets requests", func() bool { return s.Counters().Requests > before })
		}
	}
	removed := c.Counters().Requests
	ab.WantChange("ssps[openx].endpoints", b.Addr(), b.Addr(), "in place")
	y.AwaitSent(t, 300)
	y.Stop()
	m := ab.Scrape()
	if fills, all := m.Sum("adbuffer_requests_total", "outcome=fill"), m.Sum("adbuffer_requests_total"); fills != all || all < 4000 {
		t.Errorf("%v of %v requests were filled, want all", fills, all)
	}
	if n := m.Sum("adbuffer_retries_total"); n > 0 {
		t.Errorf("%v requests were sent again", n)
	}
	testsupport.Eventually(t, "the removed endpoint has no connection", func() bool { return c.Counters().OpenConnections == 0 })
	if n := c.Counters().Requests - removed; n > 0 {
		t.Errorf("the removed endpoint got %d requests", n)
	}
	// The load moves between the endpoints, so a few connections are opened. A new pool for each
	// change would open all of them again.
	if n := a.Counters().Connections - kept; n > 20 {
		t.Errorf("the endpoint that stays got %d new connections during six reloads", n)
	}
}

// States and weights of endpoints survive a reload that changes other endpoints. An endpoint that
// is removed while it drains and added again is enabled. The error for an unknown name lists the
// new names.
func TestStatesOutlastAddingAndRemovingEndpoints(t *testing.T) {
	t.Parallel()
	a, b, c := e2e.Healthy(t), e2e.Healthy(t), e2e.Healthy(t)
	ab := e2e.StartReloadable(t, list(a, b))
	put(t, ab.Process, "/ssps/openx/endpoints/"+hostPort(t, a)+"/state", `{"state":"disabled"}`)
	put(t, ab.Process, "/ssps/openx/endpoints/"+hostPort(t, b)+"/state", `{"state":"draining"}`)
	ab.Take(list(c, a))
	ab.WantMetric(1, "adbuffer_endpoint_state", "endpoint="+hostPort(t, a), "state=disabled")
	ab.WantMetric(1, "adbuffer_endpoint_state", "endpoint="+hostPort(t, c), "state=enabled")
	for range 10 {
		ab.Get("/fillbuffer").WantFill("openx")
	}
	e2e.WantRequests(t, a, 0)
	e2e.WantRequests(t, c, 10)
	if status, body := ab.SendAdmin("PUT", "/ssps/openx/endpoints/"+hostPort(t, b)+"/state", `{"state":"enabled"}`); status != 404 {
		t.Errorf("the state of a removed endpoint: %d %s", status, body)
	}
	ab.Take(list(a, b))
	ab.WantMetric(1, "adbuffer_endpoint_state", "endpoint="+hostPort(t, a), "state=disabled")
	ab.WantMetric(1, "adbuffer_endpoint_state", "endpoint="+hostPort(t, b), "state=enabled")
	for range 10 {
		ab.Get("/fillbuffer").WantFill("openx")
	}
	e2e.WantRequests(t, b, 10)
}
