package main

import (
	"strings"
	"testing"

	"adbuffer/internal/sspsim"
)

// pair is a configuration of two SSPs, each with its settings in flow style, on
// routes of their names.
func pair(a, b string) string {
	var s strings.Builder
	s.WriteString("ssps:\n")
	routes := "routes:\n"
	for name, settings := range map[string]string{"a": a, "b": b} {
		if settings != "" {
			s.WriteString(sprintf("  - {name: %s, %s}\n", name, settings))
			routes += sprintf("  - {name: %s, match: {path: /%s}, ssps: [%s]}\n", name, name, name)
		}
	}
	return s.String() + routes
}

func at(s *sspsim.SSP, settings ...string) string {
	return strings.Join(append([]string{sprintf("endpoints: [%q]", s.URL())}, settings...), ", ")
}

func TestAnSSPThatDidNotChangeKeepsItsSocketsAndCounters(t *testing.T) {
	t.Parallel()
	a, b, other := healthy(t), healthy(t), healthy(t)
	ab := startReloadable(t, pair(at(a), at(b)))
	steps := []struct{ what, config string }{
		{"as it began", ""},
		{"another limit of b", pair(at(a), at(b, "pool: {max_conns: 5}"))},
		{"another endpoint of b", pair(at(a), at(other))},
		{"other routes, server and deadline", "server: {max_in_flight: 100}\ndeadline: {reserve: 6ms}\n" + pair(at(a), at(other)) + "  - {name: more, match: {path: /more}, ssps: [a, b], mode: parallel-all}\n"},
		{"b is gone", pair(at(a), "")},
		{"b is back", pair(at(a), at(b))},
	}
	for i, s := range steps {
		if s.config != "" {
			ab.take(s.config)
		}
		ab.get("/a").wantFill("a")
		n := float64(i + 1)
		m := ab.scrape()
		if got := m.value("adbuffer_ssp_requests_total", "ssp=a", "outcome=fill"); got != n {
			t.Errorf("%s: %v requests are counted, want %v", s.what, got, n)
		}
		if got := m.value("adbuffer_pool_hold_seconds_count", "ssp=a"); got != n {
			t.Errorf("%s: %v places were held, want %v", s.what, got, n)
		}
		if got := m.value("adbuffer_pool_connections_opened_total", "ssp=a", "protocol=http1"); got != 1 {
			t.Errorf("%s: %v connections were opened, want 1", s.what, got)
		}
	}
	if n := a.Counters().Connections; n != 1 {
		t.Errorf("the SSP accepted %d connections, want 1", n)
	}
}

func TestALimitChangesInPlace(t *testing.T) {
	t.Parallel()
	a := healthy(t)
	ab := startReloadable(t, pair(at(a), ""))
	ab.get("/a").wantFill("a")
	ab.take(pair(at(a, "max_in_flight: 9", "pool: {max_conns: 5, max_pending: 7, idle_timeout: 20s}", "timeouts: {request: 3s}", "qps: {limit: 1000}"), ""))
	ab.wantChange("ssps[a].pool.max_conns", "256", "5", "in place")
	ab.wantMetric(5, "adbuffer_pool_connections_limit", "ssp=a")
	ab.wantMetric(7, "adbuffer_pool_pending_requests_limit", "ssp=a")
	ab.get("/a").wantFill("a")
	ab.wantMetric(2, "adbuffer_ssp_requests_total", "ssp=a", "outcome=fill")
	if n := a.Counters().Connections; n != 1 {
		t.Errorf("the SSP accepted %d connections, want 1", n)
	}
	if _, body := ab.ask("/pools"); !strings.Contains(body, `"max_conns": 5`) || !strings.Contains(body, `"idle_timeout": "20s"`) || !strings.Contains(body, `"max_in_flight": 9`) {
		t.Errorf("/pools does not show the limits in force: %s", body)
	}
}

func TestALowerLimitHoldsOnceWhatIsInFlightHasEnded(t *testing.T) {
	t.Parallel()
	s := startGated(t, sspsim.Options{})
	ab := startReloadable(t, pair(at(s.SSP), ""))
	var clients []*client
	for range 8 {
		c := ab.dial()
		c.send(request("GET", "/a", ""))
		clients = append(clients, c)
	}
	awaitInFlight(t, s.SSP, 8)
	ab.take(pair(at(s.SSP, "pool: {max_conns: 2}"), ""))
	s.open()
	for _, c := range clients { // nobody is cut
		c.read("GET").wantFill("a")
	}
	eventually(t, "the connections beyond the limit are closed", func() bool { return s.Counters().OpenConnections <= 2 })
	ab.get("/a").wantFill("a")
}

func TestAnotherEndpointProtocolOrTLSBuildsANewPoolAndTheOldOneDrains(t *testing.T) {
	t.Parallel()
	old, next := startGated(t, sspsim.Options{}), healthy(t)
	secure := startSSP(t, sspsim.Options{Protocol: sspsim.TLSAuto})
	ca := caFile(t, secure)
	ab := startReloadable(t, pair(at(old.SSP), ""))
	busy := ab.dial()
	busy.send(request("GET", "/a", ""))
	awaitInFlight(t, old.SSP, 1)
	ab.take(pair(at(next), ""))
	ab.wantChange("ssps[a].endpoints", old.Addr(), next.Addr(), "new pool")
	ab.get("/a").wantFill("a") // while the old one is still busy
	wantAsked(t, next, 1)
	if n := old.Counters().OpenConnections; n != 1 {
		t.Errorf("%d connections to the old endpoint, while a request is on one", n)
	}
	old.open()
	busy.read("GET").wantFill("a")
	wantNoConnections(t, old.SSP)

	ab.take(pair(at(secure, sprintf("tls: {ca_file: %q}", ca), "protocol: http1"), ""))
	ab.get("/a").wantFill("a")
	wantNoConnections(t, next)
	ab.take(pair(at(secure, sprintf("tls: {ca_file: %q}", ca), "protocol: http2"), ""))
	ab.wantChange("ssps[a].protocol", "http1", "http2", "new pool")
	ab.get("/a").wantFill("a")
	eventually(t, "only the HTTP/2 connection is left", func() bool {
		c := secure.Counters()
		return c.HTTP2Connections == 1 && c.OpenConnections == 1
	})
}

func wantNoConnections(t *testing.T, s *sspsim.SSP) {
	t.Helper()
	if !s.AwaitCounters(patience, func(c sspsim.Counters) bool { return c.OpenConnections == 0 }) {
		t.Errorf("%d connections are still open", s.Counters().OpenConnections)
	}
}

func TestARemovedSSPDrainsAndItsSeriesAreGone(t *testing.T) {
	t.Parallel()
	a, b := healthy(t), startGated(t, sspsim.Options{})
	ab := startReloadable(t, pair(at(a), at(b.SSP)))
	busy := ab.dial()
	busy.send(request("GET", "/b", ""))
	awaitInFlight(t, b.SSP, 1)
	ab.take(pair(at(a), ""))
	ab.wantChange("ssps[b]", b.Addr(), "", "pool drains")
	ab.get("/b").wantStatus("the route is gone", 404)
	b.open()
	busy.read("GET").wantFill("b") // what was in flight is not cut
	wantNoConnections(t, b.SSP)
	for name, all := range ab.scrape().series {
		for _, s := range all {
			if s.has([]string{"ssp=b"}) || s.has([]string{"route=b"}) {
				t.Errorf("there is still %s%s", name, s.labels)
			}
		}
	}
	if _, body := ab.ask("/pools"); strings.Contains(body, `"ssp": "b"`) {
		t.Error("/pools still shows it")
	}
	ab.take(pair(at(a), at(b.SSP)))
	ab.get("/b").wantFill("b")
	ab.wantMetric(1, "adbuffer_ssp_requests_total", "ssp=b", "outcome=fill") // it starts at 0 again
}
