package endpoints

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

func put(t *testing.T, ab *e2e.Process, path, body string) string {
	t.Helper()
	status, got := ab.SendAdmin("PUT", path, body)
	testsupport.MustTrue(t, status == 200, "PUT %s %s: %d %s", path, body, status, got)
	return got
}

// The admin listener changes states and weights. The changes are logged, and survive reloads of
// both kinds.
func TestStatesAndWeightsByHand(t *testing.T) {
	t.Parallel()
	a, b := e2e.Healthy(t), e2e.Healthy(t)
	ab := e2e.Start(t, pair(a, b, ""))
	nameA, nameB := a.Addr(), b.Addr()
	if got := put(t, ab, "/ssps/openx/endpoints/"+nameA+"/state", `{"state":"draining"}`); !strings.Contains(got, `"state": "draining"`) {
		t.Errorf("the response is %s", got)
	}
	ab.WantLogged("an operator changed an SSP", "ssp=openx", "endpoint="+nameA, "before=enabled", "now=draining", "by=127.0.0.1:")
	put(t, ab, "/ssps/openx/endpoints/"+nameB+"/weight", `{"weight":7}`)
	check := func(when string) {
		t.Helper()
		before := a.Counters().Requests
		for range 10 {
			ab.Get("/fillbuffer").WantFill("openx")
		}
		testsupport.Equal(t, a.Counters().Requests-before, 0, "%[2]s: the drained endpoint got %[1]d requests", when)
		ab.WantMetric(1, "adbuffer_endpoint_state", "endpoint="+nameA, "state=draining")
		_, body := ab.AskAdmin("/ssps")
		var list []struct {
			Endpoints []struct {
				Endpoint string
				Weight   int
			}
		}
		if err := json.Unmarshal([]byte(body), &list); err != nil || len(list) != 1 || list[0].Endpoints[1].Weight != 7 {
			t.Errorf("%s: /ssps is %s (%v), want weight 7 of the second endpoint", when, body, err)
		}
	}
	check("before a reload")
	ab.Take(pair(a, b, "    pool: {max_conns: 10}"))
	check("after a reload in place")
	ab.Take(pair(a, b, "    protocol: http1"))
	check("after a reload with a new pool")
	c := e2e.Healthy(t)
	ab.Take(pair(a, c, "")) // the second endpoint is removed, the drained one stays
	ab.WantMetric(1, "adbuffer_endpoint_state", "endpoint="+nameA, "state=draining")
	ab.WantMetric(1, "adbuffer_endpoint_state", "endpoint="+c.Addr(), "state=enabled")

	restarted := e2e.Start(t, pair(a, b, ""))
	restarted.WantMetric(1, "adbuffer_endpoint_state", "endpoint="+nameA, "state=enabled")
}

func TestWrongChangesByHand(t *testing.T) {
	t.Parallel()
	a, b := e2e.Healthy(t), e2e.Healthy(t)
	ab := e2e.Start(t, pair(a, b, ""))
	endpoint := "/ssps/openx/endpoints/" + a.Addr()
	for _, c := range []struct {
		path, body string
		status     int
		says       string
	}{
		{"/ssps/appnexus/state", `{"state":"disabled"}`, 404, "there are openx"},
		{"/ssps/openx/endpoints/nowhere:80/state", `{"state":"disabled"}`, 404, b.Addr()},
		{"/ssps/openx/state", `{"state":"off"}`, 400, `"off" must be one of enabled, draining, disabled`},
		{"/ssps/openx/state", `{"weight":3}`, 400, "draining"},
		{"/ssps/openx/state", `draining`, 400, "draining"},
		{endpoint + "/weight", `{"weight":0}`, 400, "from 1 to 1000"},
		{endpoint + "/weight", `{"weight":1001}`, 400, "from 1 to 1000"},
		{endpoint + "/weight", `{"weight":"3"}`, 400, `{"weight":3}`},
		{endpoint + "/weight", strings.Repeat(" ", 2000), 413, "longer than 1024 bytes; send {"},
	} {
		if status, body := ab.SendAdmin("PUT", c.path, c.body); status != c.status || !strings.Contains(body, c.says) {
			t.Errorf("PUT %s %.40s: %d %s, want %d and %q", c.path, c.body, status, body, c.status, c.says)
		}
	}
	if status, _ := ab.SendAdmin("PUT", "/ssps/openx/state", `{"state":"disabled"}`, "Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"); status != 403 {
		t.Errorf("a page of another origin changed a state: %d", status)
	}
	ab.WantMetric(1, "adbuffer_ssp_state", "ssp=openx", "state=enabled")
	ab.Get("/fillbuffer").WantFill("openx")
}

// An SSP is disabled under load. No request fails: the waterfall's next tier responds, and a single
// route ends as ssp_disabled.
func TestDisabledSSPUnderLoad(t *testing.T) {
	t.Parallel()
	first, second := e2e.SSPWith(t, sspsim.Behaviour{Latency: sspsim.Constant(5 * time.Millisecond)}), e2e.Healthy(t)
	ab := e2e.Start(t, fmt.Sprintf(`
ssps:
  - {name: openx, endpoints: [%q]}
  - {name: backup, endpoints: [%q]}
routes:
  - {name: both, match: {path: /fillbuffer}, mode: waterfall, ssps: [openx, backup]}
  - {name: one, match: {path: /one}, ssps: [openx]}
`, first.URL(), second.URL()))
	y := ab.StartTraffic(16, 0, "/fillbuffer?n=")
	y.AwaitSent(t, 200)
	for _, state := range []string{"disabled", "enabled", "draining", "enabled", "disabled"} {
		put(t, ab, "/ssps/openx/state", `{"state":"`+state+`"}`)
		y.AwaitSent(t, 200)
	}
	y.Stop()
	m := ab.Scrape()
	fills, all := m.Value("adbuffer_requests_total", "route=both", "outcome=fill"), m.Sum("adbuffer_requests_total", "route=both")
	testsupport.True(t, fills == all && all >= 1200, "%v of %v requests were filled, want all", fills, all)
	if n := m.Value("adbuffer_ssp_requests_total", "ssp=openx", "outcome=ssp_disabled"); n == 0 {
		t.Error("no request to the disabled SSP was refused")
	}
	if n := second.Counters().Requests; n == 0 {
		t.Error("the next tier got no request")
	}
	ab.WantMetric(1, "adbuffer_ssp_state", "ssp=openx", "state=disabled")
	if got := ab.Get("/one"); got.Status != 503 || e2e.ErrorOf(got).Error != "ssp_disabled" || got.Header("X-Adbuffer-Source") != "proxy/ssp_disabled" {
		t.Errorf("a route with the disabled SSP alone responds %d %s", got.Status, got.Body)
	}
}

// The command ssp does the same as the admin listener.
func TestSSPCommand(t *testing.T) {
	t.Parallel()
	a, b := e2e.Healthy(t), e2e.Healthy(t)
	ab := e2e.Start(t, pair(a, b, ""))
	run := func(wantCode int, args ...string) (out, log string) {
		t.Helper()
		out, log, code := e2e.Run(t, nil, append([]string{"ssp", "--admin", "http://" + ab.AdminAddr}, args...)...)
		testsupport.MustTrue(t, code == wantCode, "adbuffer ssp %v: exit status %d, want %d\n%s%s", args, code, wantCode, out, log)
		return out, log
	}
	name := a.Addr()
	if out, _ := run(0, "list"); !strings.Contains(out, name) || !strings.Contains(out, "50.0 %") || !strings.Contains(out, "enabled") {
		t.Errorf("list:\n%s", out)
	}
	if out, _ := run(0, "drain", "openx", "--endpoint", name); !strings.Contains(out, "draining") {
		t.Errorf("drain: %s", out)
	}
	ab.WantMetric(1, "adbuffer_endpoint_state", "endpoint="+name, "state=draining")
	run(0, "weight", "openx", "3", "--endpoint", b.Addr())
	out, _ := run(0, "list", "openx", "--json")
	var list []struct {
		SSP, State string
		Endpoints  []struct {
			Endpoint, State string
			Weight          int
			Share           float64
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 || list[0].Endpoints[0].State != "draining" ||
		list[0].Endpoints[1].Weight != 3 || list[0].Endpoints[1].Share != 1 {
		t.Errorf("list --json: %v\n%s", err, out)
	}
	run(0, "disable", "openx", "--endpoint", b.Addr())
	if out, _ := run(0, "enable", "openx"); !strings.Contains(out, "openx: enabled, but gets no requests") {
		t.Errorf("enable of an SSP without an enabled endpoint: %q", out)
	}
	run(0, "enable", "openx", "--endpoint", b.Addr())
	run(0, "enable", "openx", "--endpoint", name)
	if out, _ := run(0, "disable", "openx"); out != "openx: disabled\n" {
		t.Errorf("disable: %q", out)
	}
	ab.WantMetric(1, "adbuffer_ssp_state", "state=disabled")
	run(0, "enable", "openx")
	ab.Get("/fillbuffer").WantFill("openx")
	if _, log := run(1, "disable", "unknown"); !strings.Contains(log, "there are openx") {
		t.Errorf("an unknown SSP: %s", log)
	}
	if _, log := run(1, "list", "unknown"); !strings.Contains(log, "there are openx") {
		t.Errorf("list of an unknown SSP: %s", log)
	}
	if _, log := run(2, "weight", "openx", "3"); !strings.Contains(log, "--endpoint") {
		t.Errorf("weight without an endpoint: %s", log)
	}
}

// The list says why an endpoint gets no requests although it is enabled: nothing listens there.
func TestListNamesUnreachableEndpoints(t *testing.T) {
	t.Parallel()
	a := e2e.Healthy(t)
	ab := e2e.Start(t, fmt.Sprintf(`
ssps: [{name: openx, endpoints: [%q, "http://%s/bid"], ejection: {enabled: false}}]
routes: [{name: default, match: {path: /fillbuffer}, ssps: [openx]}]
`, a.URL(), testsupport.FreeAddr(t)))
	testsupport.Eventually(t, "the list names it", func() bool {
		ab.Get("/fillbuffer").WantFill("openx")
		out, _, _ := e2e.Run(t, nil, "ssp", "list", "--admin", "http://"+ab.AdminAddr)
		return strings.Contains(out, "enabled, unreachable")
	})
}
