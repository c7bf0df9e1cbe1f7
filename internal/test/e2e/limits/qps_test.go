package limits

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

func TestRequestsOverQPSAreRefused(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, e2e.Single(s.URL(), "qps: {limit: 0.01, burst: 2}"))
	c := ab.Dial()
	began := time.Now()
	c.Get("/fillbuffer").WantFill("openx")
	c.Post("/fillbuffer", "{}").WantFill("openx")
	want := e2e.Refusal{Status: 503, Reason: "qps_limit", SSP: "openx", Names: []string{"0.01", "qps"}}
	ab.WantRefusal("a third", want, func() *e2e.Response { return c.Get("/fillbuffer") })
	e2e.WantRequests(t, s, 2)
	ab.WantMetric(1, "adbuffer_qps_limited_total", "ssp=openx")
	after, err := strconv.Atoi(c.Get("/fillbuffer").Header("Retry-After"))
	if passed := time.Since(began); err != nil || after > 100 || float64(after) < 100-passed.Seconds() {
		t.Errorf("Retry-After is %d (%v), with a request in 100 s, %v after the first request", after, err, passed)
	}
}

// A request that qps.shape drops gets the route's no_ad. /pools and explain say what the shaper knows, and plan what other
// limits would keep.
func TestALimitWithAShaperDropsRequestsAsNoAd(t *testing.T) {
	t.Parallel()
	ab := e2e.Start(t, fmt.Sprintf(`
ssps:
  - {name: openx, endpoints: [%q], qps: {limit: 0.01, burst: 2, shape: {keys: ["query:slot", "openrtb:/imp/0/banner/w"], explore: 0.005}}}
  - {name: dry, endpoints: [%[1]q], qps: {shape: {keys: ["query:slot"], dry_run: true}}}
routes:
  - {name: bids, match: {path: /bid}, ssps: [openx], no_ad: openrtb}
  - {name: dry, match: {path: /dry}, ssps: [dry]}
`, e2e.Healthy(t).URL()))
	const body = `{"id":"1","imp":[{"banner":{"w":300}}]}`
	var got *e2e.Response
	testsupport.Eventually(t, "a request is dropped", func() bool {
		got = ab.Post("/bid?slot=top", body)
		return got.Header("X-Adbuffer-Source") == "proxy/shaped"
	})
	got.WantStatus("the dropped request", 200)
	testsupport.Equal(t, got.Body+got.Header("Retry-After"), `{"id":"1","nbr":500}`+"\n", "the response is %q")
	ab.AwaitMetricAbove(0, "adbuffer_shape_requests_total", "ssp=openx", "decision=dropped")
	ab.AwaitMetricAbove(0, "adbuffer_requests_total", "route=bids", "outcome=shaped")
	_, pools := ab.AskAdmin("/pools?ssp=openx")
	testsupport.True(t, strings.Contains(pools, `"text": "qps.shape drops `) && strings.Count(pools, `"from": `) == 8, "/pools has no view of the shaper: %s", pools)
	out, _, code := e2e.Run(t, nil, "explain", "--admin", "http://"+ab.AdminAddr, "-X", "POST", "--data", body, "/bid?slot=top")
	testsupport.True(t, code == 0 && strings.Contains(out, "shape     query:slot is top: ") && strings.Contains(out, "openrtb:/imp/0/banner/w is 300: ") && strings.Contains(out, "dropped, unless explored"), "explain says %s", out)

	c := ab.Dial()
	for range 100 {
		c.Get("/dry?slot=top").WantFill("dry")
	}
	// All requests are alike, so a limit keeps as many fills as requests.
	out, _, code = e2e.Run(t, nil, "plan", "--shape", "--admin", "http://"+ab.AdminAddr)
	testsupport.True(t, code == 0 && strings.Contains(out, "measured in a dry run\n") && regexp.MustCompile(`/s +40 % +40.0 % `).MatchString(out) &&
		strings.Contains(out, "openx: qps.shape has seen fewer than 100 fills."), "plan says %s", out)
}
