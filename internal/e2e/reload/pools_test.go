package reload

import (
	"fmt"
	"strings"
	"testing"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

// pair is a configuration of two SSPs, each with its settings in flow style, on routes with their
// names.
func pair(a, b string) string {
	var s strings.Builder
	s.WriteString("ssps:\n")
	routes := "routes:\n"
	for name, settings := range map[string]string{"a": a, "b": b} {
		if settings != "" {
			fmt.Fprintf(&s, "  - {name: %s, %s}\n", name, settings)
			routes += fmt.Sprintf("  - {name: %s, match: {path: /%s}, ssps: [%s]}\n", name, name, name)
		}
	}
	return s.String() + routes
}

func at(s *sspsim.SSP, settings ...string) string {
	return strings.Join(append([]string{fmt.Sprintf("endpoints: [%q]", s.URL())}, settings...), ", ")
}

func TestAnSSPThatDidNotChangeKeepsItsSocketsAndCounters(t *testing.T) {
	t.Parallel()
	a, b, other := e2e.Healthy(t), e2e.Healthy(t), e2e.Healthy(t)
	ab := e2e.StartReloadable(t, pair(at(a), at(b)))
	steps := []struct{ what, config string }{
		{"the first configuration again", ""},
		{"another limit of b", pair(at(a), at(b, "pool: {max_conns: 5}"))},
		{"another endpoint of b", pair(at(a), at(other))},
		{"other routes, server and deadline", "server: {max_in_flight: 100}\ndeadline: {reserve: 6ms}\n" + pair(at(a), at(other)) + "  - {name: more, match: {path: /more}, ssps: [a, b], mode: parallel-all}\n"},
		{"b is gone", pair(at(a), "")},
		{"b is back", pair(at(a), at(b))},
	}
	for i, s := range steps {
		if s.config != "" {
			ab.Take(s.config)
		}
		ab.Get("/a").WantFill("a")
		n := float64(i + 1)
		m := ab.Scrape()
		if got := m.Value("adbuffer_ssp_requests_total", "ssp=a", "outcome=fill"); got != n {
			t.Errorf("%s: %v requests are counted, want %v", s.what, got, n)
		}
		if got := m.Value("adbuffer_pool_hold_seconds_count", "ssp=a"); got != n {
			t.Errorf("%s: %v places were held, want %v", s.what, got, n)
		}
		if got := m.Value("adbuffer_pool_connections_opened_total", "ssp=a", "protocol=http1"); got != 1 {
			t.Errorf("%s: %v connections were opened, want 1", s.what, got)
		}
	}
	if n := a.Counters().Connections; n != 1 {
		t.Errorf("the SSP accepted %d connections, want 1", n)
	}
}

func TestALimitChangesInPlace(t *testing.T) {
	t.Parallel()
	a := e2e.Healthy(t)
	ab := e2e.StartReloadable(t, pair(at(a), ""))
	ab.Get("/a").WantFill("a")
	ab.Take(pair(at(a, "max_in_flight: 9", "pool: {max_conns: 5, max_pending: 7, idle_timeout: 20s}", "timeouts: {request: 3s}", "qps: {limit: 1000}"), ""))
	ab.WantChange("ssps[a].pool.max_conns", "256", "5", "in place")
	ab.WantMetric(5, "adbuffer_pool_connections_limit", "ssp=a")
	ab.WantMetric(7, "adbuffer_pool_pending_requests_limit", "ssp=a")
	ab.Get("/a").WantFill("a")
	ab.WantMetric(2, "adbuffer_ssp_requests_total", "ssp=a", "outcome=fill")
	if n := a.Counters().Connections; n != 1 {
		t.Errorf("the SSP accepted %d connections, want 1", n)
	}
	if _, body := ab.AskAdmin("/pools"); !strings.Contains(body, `"max_conns": 5`) || !strings.Contains(body, `"idle_timeout": "20s"`) || !strings.Contains(body, `"max_in_flight": 9`) {
		t.Errorf("/pools does not show the current limits: %s", body)
	}
}

func TestALowerLimitHoldsWhenRequestsInFlightHaveEnded(t *testing.T) {
	t.Parallel()
	s := e2e.StartGated(t, sspsim.Options{})
	ab := e2e.StartReloadable(t, pair(at(s.SSP), ""))
	var clients []*e2e.Client
	for range 8 {
		c := ab.Dial()
		c.Send(e2e.Request("GET", "/a", ""))
		clients = append(clients, c)
	}
	e2e.AwaitInFlight(t, s.SSP, 8)
	ab.Take(pair(at(s.SSP, "pool: {max_conns: 2}"), ""))
	s.Open()
	for _, c := range clients { // no request is cut
		c.Read("GET").WantFill("a")
	}
	testsupport.Eventually(t, "the connections beyond the limit are closed", func() bool { return s.Counters().OpenConnections <= 2 })
	ab.Get("/a").WantFill("a")
}

func TestAnotherEndpointProtocolOrTLSBuildsANewPoolAndTheOldOneDrains(t *testing.T) {
	t.Parallel()
	old, next := e2e.StartGated(t, sspsim.Options{}), e2e.Healthy(t)
	secure := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.TLSAuto})
	ca := e2e.CAFile(t, secure)
	ab := e2e.StartReloadable(t, pair(at(old.SSP), ""))
	busy := ab.Dial()
	busy.Send(e2e.Request("GET", "/a", ""))
	e2e.AwaitInFlight(t, old.SSP, 1)
	ab.Take(pair(at(next), ""))
	ab.WantChange("ssps[a].endpoints", old.Addr(), next.Addr(), "new pool")
	ab.Get("/a").WantFill("a") // while the old pool still has a request
	e2e.WantRequests(t, next, 1)
	if n := old.Counters().OpenConnections; n != 1 {
		t.Errorf("%d connections to the old endpoint, while a request is on one", n)
	}
	old.Open()
	busy.Read("GET").WantFill("a")
	wantNoConnections(t, old.SSP)

	ab.Take(pair(at(secure, fmt.Sprintf("tls: {ca_file: %q}", ca), "protocol: http1"), ""))
	ab.Get("/a").WantFill("a")
	wantNoConnections(t, next)
	ab.Take(pair(at(secure, fmt.Sprintf("tls: {ca_file: %q}", ca), "protocol: http2"), ""))
	ab.WantChange("ssps[a].protocol", "http1", "http2", "new pool")
	ab.Get("/a").WantFill("a")
	testsupport.Eventually(t, "only the HTTP/2 connection is open", func() bool {
		c := secure.Counters()
		return c.HTTP2Connections == 1 && c.OpenConnections == 1
	})
}

func wantNoConnections(t *testing.T, s *sspsim.SSP) {
	t.Helper()
	e2e.AwaitCounters(t, s, "no connection is open", func(c sspsim.Counters) bool { return c.OpenConnections == 0 })
}

func TestARemovedSSPDrainsAndItsSeriesAreGone(t *testing.T) {
	t.Parallel()
	a, b := e2e.Healthy(t), e2e.StartGated(t, sspsim.Options{})
	ab := e2e.StartReloadable(t, pair(at(a), at(b.SSP)))
	busy := ab.Dial()
	busy.Send(e2e.Request("GET", "/b", ""))
	e2e.AwaitInFlight(t, b.SSP, 1)
	ab.Take(pair(at(a), ""))
	ab.WantChange("ssps[b]", b.Addr(), "", "pool drains")
	ab.Get("/b").WantStatus("the route is removed", 404)
	b.Open()
	busy.Read("GET").WantFill("b") // the request in flight is not cancelled
	wantNoConnections(t, b.SSP)
	for name, all := range ab.Scrape().Series {
		for _, s := range all {
			if s.Has([]string{"ssp=b"}) || s.Has([]string{"route=b"}) {
				t.Errorf("%s%s still exists", name, s.Labels)
			}
		}
	}
	if _, body := ab.AskAdmin("/pools"); strings.Contains(body, `"ssp": "b"`) {
		t.Error("/pools still shows it")
	}
	ab.Take(pair(at(a), at(b.SSP)))
	ab.Get("/b").WantFill("b")
	ab.WantMetric(1, "adbuffer_ssp_requests_total", "ssp=b", "outcome=fill") // the counter restarts at 0
}
