package forwarding

import (
	"fmt"
	"testing"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
)

const chooseConfig = `
ssps:
  - {name: a, endpoints: [%[1]q]}
  - {name: b, endpoints: [%[2]q]}
  - {name: c, endpoints: [%[3]q]}
routes:
  - {name: default, match: {path: /fillbuffer}, ssps: [a, b], client_choice: true}
  - {name: closed, match: {path: /closed}, ssps: [a, b]}
  - {name: below, match: {path: /below/*}, ssps: [c]}
`

func TestAClientMayChooseAmongTheSSPsOfARouteThatAllowsIt(t *testing.T) {
	t.Parallel()
	a, b, c := e2e.Healthy(t), e2e.Healthy(t), e2e.Healthy(t)
	ab := e2e.Start(t, fmt.Sprintf(chooseConfig, a.URL(), b.URL(), c.URL()))
	conn := ab.Dial()
	for _, row := range []struct{ target, field, ssp, query string }{
		{"/fillbuffer", "", "a", ""},
		{"/fillbuffer/b", "", "b", ""},
		{"/fillbuffer/b?x=1", "", "b", "?x=1"},
		{"/fillbuffer?ssp=b", "", "b", ""},
		{"/fillbuffer?ssp=b&x=1", "", "b", "?x=1"},
		{"/fillbuffer?x=1&ssp=b", "", "b", "?x=1"},
		{"/fillbuffer?x=1&ssp=b&y=%20&&", "", "b", "?x=1&y=%20&&"},
		{"/fillbuffer?x=1", "X-Adbuffer-SSP: b", "b", "?x=1"},
		{"/fillbuffer/b?ssp=b", "x-adbuffer-ssp: b", "b", ""},
		{"/fillbuffer?%73sp=b", "", "a", "?%73sp=b"}, // an encoded key is no control parameter
		{"/fillbuffer?SSP=b", "", "a", "?SSP=b"},
		{"/fillbuffer?x=ssp=b", "", "a", "?x=ssp=b"},
		{"/closed?ssp=b&x=1", "X-Adbuffer-SSP: b", "a", "?ssp=b&x=1"}, // this route has no client_choice, so the query belongs to the SSP
		{"/below/a", "", "c", ""},
	} {
		var fields []string
		if row.field != "" {
			fields = append(fields, row.field)
		}
		conn.Get(row.target, fields...).WantFill(row.ssp)
		got := e2e.LastRequest(t, map[string]*sspsim.SSP{"a": a, "b": b, "c": c}[row.ssp])
		if got.Target != "/bid"+row.query || got.Get("X-Adbuffer-Ssp") != "" {
			t.Errorf("%s: the SSP got a request for %s with %v, want /bid%s", row.target, got.Target, got.Header, row.query)
		}
	}
}

func TestAChoiceThatARouteDoesNotAllowIsRefused(t *testing.T) {
	t.Parallel()
	a, b, c := e2e.Healthy(t), e2e.Healthy(t), e2e.Healthy(t)
	ab := e2e.Start(t, fmt.Sprintf(chooseConfig, a.URL(), b.URL(), c.URL()))
	conn := ab.Dial()
	unknown, bad := e2e.Refusal{Status: 404, Reason: "unknown_ssp"}, e2e.Refusal{Status: 400, Reason: "bad_request"}
	for _, row := range []struct {
		want   e2e.Refusal
		target string
		fields []string
	}{
		{unknown, "/fillbuffer/c", nil},
		{unknown, "/fillbuffer?ssp=c", nil},
		{unknown, "/fillbuffer", []string{"X-Adbuffer-SSP: c"}},
		{unknown, "/fillbuffer/unknown", nil},
		{unknown, "/fillbuffer?ssp=", nil},
		{unknown, "/fillbuffer/A", nil},
		{unknown, "/fillbuffer?ssp=127.0.0.1:80", nil},
		{unknown, "/fillbuffer?ssp=http://evil.example/", nil},
		{bad, "/fillbuffer/a?ssp=b", nil},
		{bad, "/fillbuffer?ssp=a&ssp=b", nil},
		{bad, "/fillbuffer?ssp=a&ssp=a", nil},
		{bad, "/fillbuffer?ssp=%61", nil},
		{bad, "/fillbuffer?ssp=a", []string{"X-Adbuffer-SSP: b"}},
		{bad, "/fillbuffer", []string{"X-Adbuffer-SSP: a", "X-Adbuffer-SSP: a"}},
		{bad, "/fillbuffer/a", []string{"X-Adbuffer-SSP: b"}},
	} {
		ab.WantRefusal(row.target, row.want, func() *e2e.Response { return conn.Get(row.target, row.fields...) })
	}
	for _, s := range []*sspsim.SSP{a, b, c} {
		e2e.WantRequests(t, s, 0)
	}
	conn.Get("/fillbuffer").WantFill("a") // the framing is valid
}
