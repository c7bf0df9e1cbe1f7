package app

import (
	"strings"
	"testing"
	"time"

	"adbuffer/internal/setup/config"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// at is an SSP of a configuration.
func at(name string, s *sspsim.SSP, settings ...string) string {
	return strings.Join(append([]string{"name: " + name, `endpoints: ["` + s.URL() + `"]`}, settings...), ", ")
}

// to is a route /path to SSPs.
func to(path, ssps string, settings ...string) string {
	return strings.Join(append([]string{"name: " + path, "match: {path: /" + path + "}", "ssps: [" + ssps + "]"}, settings...), ", ")
}

func TestChangedSettingsApplyInPlace(t *testing.T) {
	a := sim(t, sspsim.Options{Record: 10})
	s := setup{ssps: []string{at("a", a)}, routes: []string{to("x", "a")}}
	v := run(t, s)
	v.want("/x", "a")
	was := v.app.versions.Current().Parts[0]
	s.ssps[0] = at("a", a, "max_in_flight: 7", "pool: {max_conns: 9, max_pending: 3}", `headers: {set: [{name: X-New, value: "1"}]}`,
		"timeouts: {connect: 111ms, request: 1s}", "host: other.example", "breaker: {window: 1s}", "qps: {limit: 1000}", "retry: {max: 0}")
	s.ssps[0] = strings.Replace(s.ssps[0], "/bid", "/other?v=3", 1)
	testsupport.True(t, len(v.reload(s).Changes) != 0, "the reload names no change")
	v.want("/x", "a")
	is := v.app.versions.Current().Parts[0]
	testsupport.True(t, is.SSP.Pool() == was.SSP.Pool() && a.Counters().Connections == 1, "the pool is another, or %d connections were opened", a.Counters().Connections)
	o := is.SSP.Pool().Options()
	testsupport.True(t, o.MaxConns == 9 && o.MaxPending == 3 && o.ConnectTimeout == 111*time.Millisecond, "the pool's options are %+v", o)
	last := a.Requests()[1]
	testsupport.True(t, last.Get("X-New") == "1" && last.Get("Host") == "other.example" && last.Target == "/other?v=3", "the request was sent as %s", last.Head)
	v.wantMetric(`ssp_requests_total{outcome="fill",ssp="a"}`, "2")
	v.wantMetric(`concurrency_limit{ssp="a"}`, "7")
	v.wantMetric(`pool_connections_limit{ssp="a"}`, "9")
	v.wantMetric(`pool_connections_opened_total{protocol="http1",ssp="a"}`, "1")
}

// A connection keeps the limits that it was opened with, for up to max_age. So a raised
// max_response_bytes would have no effect for ten minutes.
func TestLimitsThatConnectionsKeepHoldWithinSeconds(t *testing.T) {
	for _, protocol := range []sspsim.Protocol{sspsim.HTTP1, sspsim.H2C} {
		t.Run(string(protocol), func(t *testing.T) {
			a := sim(t, sspsim.Options{Protocol: protocol, Behaviour: sspsim.Behaviour{Response: sspsim.Response{Kind: sspsim.Raw, Size: sspsim.Size{Constant: 5000}}}})
			speak := map[sspsim.Protocol]string{sspsim.HTTP1: "protocol: http1", sspsim.H2C: "protocol: h2c"}[protocol]
			s := setup{ssps: []string{at("a", a, speak, "max_response_bytes: 4999", "breaker: {enabled: false}")}, routes: []string{to("x", "a")}}
			v := run(t, s)
			got := v.get("/x")
			testsupport.True(t, got.source == "proxy/response_too_large", "got %+v", got)
			was := v.pool()
			s.ssps[0] = at("a", a, speak, "max_response_bytes: 5000", "breaker: {enabled: false}")
			v.reloadOne(s, config.NewConnections)
			v.await("the response is still too large", func() bool { return v.get("/x").status == 200 })
			testsupport.Equal(t, v.pool(), was, "the pool is another: %v")
		})
	}
}

// The budget of an SSP without max_buffered_bytes is a quarter of the server's, also when a reload
// changes only the server's. A budget of the SSP's own applies at once too.
func TestAnSSPsShareOfTheBufferIsReloadedInPlace(t *testing.T) {
	a := sim(t, sspsim.Options{})
	s := setup{server: "max_buffered_bytes: 8000000", ssps: []string{at("a", a)}, routes: []string{to("x", "a")}}
	v := run(t, s)
	was := v.pool()
	const limit = `ssp_buffered_bytes_limit{ssp="a"}`
	v.wantMetric(limit, "2e+06")
	s.server = "max_buffered_bytes: 6000000"
	v.reload(s)
	v.wantMetric(limit, "1.5e+06")
	s.ssps[0] = at("a", a, "max_buffered_bytes: 5000000")
	v.reloadOne(s, config.InPlace)
	v.wantMetric(limit, "5e+06")
	testsupport.Equal(t, v.pool(), was, "the pool is another: %v")
	v.want("/x", "a")
}

// A pool that replaces one in use is warm first: with as many connections as the old one, up to max_idle.
func TestAnotherEndpointGetsANewPoolAndTheOldOneDrains(t *testing.T) {
	g := newGate()
	a, b := sim(t, sspsim.Options{OnRequest: g.hold}), sim(t, sspsim.Options{})
	const settings = "max_in_flight: 10, pool: {max_conns: 8, min_idle: 2, max_idle: 3}"
	s := setup{ssps: []string{at("a", a, settings)}, routes: []string{to("x", "a")}}
	v := run(t, s)
	responses := v.inFlight(g, "/x", 5)
	s.ssps[0] = at("a", b, settings)
	v.reloadOne(s, config.NewPool)
	pool := v.pool()
	testsupport.Equal(t, pool.Snapshot().Opened, 3, "%d connections to the new endpoint are open when the reload returns, want max_idle")
	testsupport.Equal(t, pool.Options().MinIdle, 2, "min_idle is %d, want the configured one")
	v.want("/x", "a")
	testsupport.Equal(t, b.Counters().Requests, 1, "the new endpoint was asked %d times, want once")
	v.wantMetric("pools_draining", "1")
	v.wantMetric(`ssp_in_flight_requests{ssp="a"}`, "5")
	close(g.open)
	for range cap(responses) {
		wantFill(t, <-responses, "a")
	}
	v.drained()
	v.wantMetric("pools_draining", "0")
	wantNoConnections(t, a)
	v.wantMetric(`ssp_requests_total{outcome="fill",ssp="a"}`, "6")
}

func TestARemovedSSPDrainsAndItsSeriesVanish(t *testing.T) {
	g := newGate()
	a, b := sim(t, sspsim.Options{}), sim(t, sspsim.Options{OnRequest: g.hold})
	s := setup{ssps: []string{at("a", a), at("b", b)}, routes: []string{to("x", "a"), to("y", "b")}}
	v := run(t, s)
	responses := v.inFlight(g, "/y", 1)
	s.ssps, s.routes = s.ssps[:1], s.routes[:1]
	v.reload(s)
	got := v.get("/y")
	testsupport.True(t, got.source == "proxy/no_route", "the removed route responds with %+v", got)
	m := v.admin("/metrics")
	testsupport.True(t, !strings.Contains(m, `ssp="b"`) && !strings.Contains(m, `route="y"`), "series of the removed route or SSP are exported")
	p := v.admin("/pools")
	testsupport.True(t, !strings.Contains(p, `"ssp": "b"`) && strings.Contains(p, `"ssp": "a"`), "/pools shows %s", p)
	c := v.admin("/config")
	testsupport.True(t, !strings.Contains(c, "name: \"b\"") && strings.Contains(c, "name: \"a\""), "/config shows %s", c)
	close(g.open)
	wantFill(t, <-responses, "b")
	v.drained()
	wantNoConnections(t, b)
}

// The request has found its route, but has not reached its SSP yet.
func TestARequestWhoseBodyComesAfterTheReloadUsesItsSSP(t *testing.T) {
	a, b := sim(t, sspsim.Options{}), sim(t, sspsim.Options{})
	s := setup{ssps: []string{at("a", a), at("b", b)}, routes: []string{to("x", "a"), to("y", "b")}}
	v := run(t, s)
	c := v.dial()
	c.write("POST /y HTTP/1.1\r\nHost: ads.example\r\nContent-Length: 10\r\n\r\n12345")
	v.await("the body is arriving", func() bool { return v.app.proxy.InProgress() == 1 && v.app.proxy.InFlight() == 0 })
	s.ssps, s.routes = s.ssps[:1], s.routes[:1]
	v.reload(s)
	time.Sleep(1100 * time.Millisecond) // until idle connections are closed, a second after the swap
	c.write("67890")
	head := c.read()
	testsupport.True(t, strings.HasPrefix(head, "HTTP/1.1 200") && strings.Contains(head, "ssp/b"), "got %q", head)
	v.drained()
}

func TestAWaterfallReachesAnSSPThatAReloadRemoved(t *testing.T) {
	g := newGate()
	a := sim(t, sspsim.Options{OnRequest: g.hold, Behaviour: sspsim.Behaviour{Response: sspsim.Response{NoBid: sspsim.Always}}})
	b := sim(t, sspsim.Options{})
	s := setup{ssps: []string{at("a", a), at("b", b)}, routes: []string{to("x", "a, b", "mode: waterfall")}}
	v := run(t, s)
	responses := v.inFlight(g, "/x", 1)
	s.ssps, s.routes = s.ssps[:1], []string{to("x", "a")}
	v.reload(s)
	close(g.open)
	wantFill(t, <-responses, "b")
	v.drained()
}

func TestAnUnreachableEndpointDelaysAReloadForABoundedTime(t *testing.T) {
	a, b := sim(t, sspsim.Options{}), sim(t, sspsim.Options{Behaviour: sspsim.Behaviour{Faults: sspsim.Faults{Refuse: true}}})
	s := setup{ssps: []string{at("a", a)}, routes: []string{to("x", "a")}}
	v := run(t, s)
	v.want("/x", "a")
	s.ssps[0] = at("a", b)
	v.reload(s)
	got := v.get("/x")
	testsupport.True(t, got.source == "proxy/connect_failed", "got %+v, want a response of the new endpoint", got)
	v.drained()
}
