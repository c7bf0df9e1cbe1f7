package forwarding

import (
	"fmt"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

func TestTheFirstRouteThatMatchesPathHostQueryAndHeaderTakesTheRequest(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, fmt.Sprintf(`
ssps:
  - {name: openx, endpoints: [%q]}
routes:
  - {name: video, match: {path: /fillbuffer, query: [{name: format, value: video}]}, ssps: [openx]}
  - {name: staging, match: {path: /fillbuffer, header: [{name: X-Env, value: staging}]}, ssps: [openx]}
  - {name: any-env, match: {path: /fillbuffer, header: [{name: X-Env}]}, ssps: [openx]}
  - {name: one-host, match: {path: /fillbuffer, host: ads.example}, ssps: [openx]}
  - {name: hosts, match: {path: /fillbuffer, host: "*.example.org"}, ssps: [openx]}
  - {name: two, match: {path: /fillbuffer, query: [{name: a}, {name: b, value: "1"}], header: [{name: X-C}]}, ssps: [openx]}
  - {name: default, match: {path: /fillbuffer}, ssps: [openx]}
  - {name: below, match: {path: /below/*}, ssps: [openx]}
`, s.URL()))
	c := ab.Dial()
	for _, row := range []struct{ target, host, fields, route string }{
		{"/fillbuffer", "a", "", "default"},
		{"/fillbuffer?format=video", "a", "", "video"},
		{"/fillbuffer?x=1&format=video&y", "ads.example", "X-Env: staging\r\n", "video"},
		{"/fillbuffer?format=videos", "a", "", "default"},
		{"/fillbuffer?format=%76ideo", "a", "", "default"},
		{"/fillbuffer?xformat=video", "a", "", "default"},
		{"/fillbuffer", "a", "x-env: staging\r\n", "staging"},
		{"/fillbuffer", "a", "X-Env: Staging\r\n", "any-env"},
		{"/fillbuffer", "a", "X-Env:\r\n", "any-env"},
		{"/fillbuffer", "ads.example", "", "one-host"},
		{"/fillbuffer", "ADS.Example:8080", "", "one-host"},
		{"/fillbuffer", "x.ads.example", "", "default"},
		{"/fillbuffer", "a.example.org", "", "hosts"},
		{"/fillbuffer", "a.b.example.org:1", "", "hosts"},
		{"/fillbuffer", "example.org", "", "default"},
		{"/fillbuffer", "aexample.org", "", "default"},
		{"http://ads.example/fillbuffer", "a", "", "one-host"}, // absolute-form has precedence over Host
		{"http://a/fillbuffer", "ads.example", "", "default"},
		{"/fillbuffer?a=&b=1", "a", "X-C: x\r\n", "two"},
		{"/fillbuffer?a&b=1", "a", "", "default"},
		{"/fillbuffer?a&b=2", "a", "X-C: x\r\n", "default"},
		{"/below/", "a", "", "below"},
		{"/below/x/y", "a", "", "below"},
	} {
		before := ab.Metric("adbuffer_requests_total", "route="+row.route, "outcome=fill")
		c.Send("GET " + row.target + " HTTP/1.1\r\nHost: " + row.host + "\r\n" + row.fields + "\r\n")
		c.Read("GET").WantFill("openx")
		testsupport.Equal(t, ab.Metric("adbuffer_requests_total", "route="+row.route, "outcome=fill")-before, 1, "%[2]s of host %[3]s with %[4]q used route %[5]s %[1]v times", row.target, row.host, row.fields, row.route)
	}
	ab.WantRefusal("/below", e2e.Refusal{Status: 404, Reason: "no_route", Route: "none"}, func() *e2e.Response { return c.Get("/below") })
}
