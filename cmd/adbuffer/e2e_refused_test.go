package main

import (
	"strings"
	"testing"
)

// refusal is one of our own answers, and all that DESIGN's table promises of it.
type refusal struct {
	status int
	reason string   // "pending_full"
	route  string   // the metric's label; "" is default
	ssp    string   // that the body names; "" where it is no SSP's
	names  []string // what the detail names: the limit's value, the setting to change
}

// wantRefusal sends one request with do, and checks status, X-Adbuffer-Source,
// body and metric of the answer.
func (ab *adbuffer) wantRefusal(what string, want refusal, do func() *answer) *answer {
	ab.t.Helper()
	if want.route == "" {
		want.route = "default"
	}
	labels := []string{"route=" + want.route, "outcome=" + want.reason}
	before := ab.scrape()
	a := do()
	after := ab.scrape()
	a.wantStatus(what, want.status).wantSource("proxy/" + want.reason)
	e := ownErrorOf(a)
	if e.Error != want.reason || e.SSP != want.ssp {
		ab.t.Errorf("%s: body %s, want error %q of ssp %q", what, a.body, want.reason, want.ssp)
	}
	for _, name := range want.names {
		if !strings.Contains(e.Detail, name) {
			ab.t.Errorf("%s: detail %q does not name %q", what, e.Detail, name)
		}
	}
	if a.header("Date") == "" {
		ab.t.Errorf("%s: no Date", what)
	}
	const name = "adbuffer_requests_total"
	if n := after.value(name, labels...) - before.value(name, labels...); n != 1 {
		ab.t.Errorf("%s: %s%v rose by %v, want 1", what, name, labels, n)
	}
	if n := after.sum(name) - before.sum(name); n != 1 {
		ab.t.Errorf("%s: all of %s rose by %v, want 1", what, name, n)
	}
	if want.ssp != "" {
		const name = "adbuffer_ssp_requests_total"
		labels := []string{"ssp=" + want.ssp, "outcome=" + want.reason}
		if n := after.value(name, labels...) - before.value(name, labels...); n != 1 {
			ab.t.Errorf("%s: %s%v rose by %v, want 1", what, name, labels, n)
		}
	}
	return a
}

func TestRequestsThatNoRouteMatchesGet404(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	ab := start(t, single(s.URL()))
	noRoute := refusal{status: 404, reason: "no_route", route: "none", names: []string{"routes[].match"}}
	c := ab.dial()
	for _, path := range []string{
		"/", "/fillbuffe", "/fillbuffer/", "/fillbuffer/openx", "/fillbufferx", "//fillbuffer", "/FILLBUFFER", "/%66illbuffer",
		"/x/../fillbuffer", "/./fillbuffer", "/fillbuffer%3fx",
	} {
		ab.wantRefusal(path, noRoute, func() *answer { return c.get(path) })
	}
	c.get("/fillbuffer").wantFill("openx") // the connection is still good
	wantAsked(t, s, 1)
}
