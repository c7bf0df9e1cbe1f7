package forwarding

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// Routes and SSPs by what is in the body, over HTTP/1 and HTTP/2, with all that shows it: source, metrics,
// access log and explain.
func TestRoutesAndSSPsAreChosenByTheBody(t *testing.T) {
	t.Parallel()
	a, b := e2e.Healthy(t), e2e.Healthy(t)
	config := fmt.Sprintf(`
server: {h2c: true}
log: {access: {enabled: true, sample: 1}}
ssps: [{name: a, endpoints: [%q]}, {name: b, endpoints: [%q]}]
routes:
  - name: video
    match: {path: /bid, openrtb: [{path: imp.*.video, exists: true}, {path: device.geo.country, in: [DEU, AUT]}]}
    ssps: [{name: a, when: [{path: regs.coppa, not_in: [1]}]}, {name: b, when: [{path: user.token, in: [s3cret]}]}]
    no_ad: vast
  - {name: rest, match: {path: /bid}, ssps: [b]}
  - {name: all, match: {path: /all}, mode: parallel-all, ssps: [a, {name: b, when: [{path: x, in: [1]}]}]}
`, a.URL(), b.URL())
	ab := e2e.Start(t, config)
	client := &http.Client{Transport: &http.Transport{Protocols: unencryptedHTTP2()}}
	defer client.CloseIdleConnections()
	const video = `"imp":[{"banner":{}},{"video":{}}]`
	for _, row := range []struct {
		body, source, route string
		fields              []string
	}{
		{`{` + video + `,"device":{"geo":{"country":"AUT"}}}`, "ssp/a", "video", nil},
		{`{` + video + `,"device":{"geo":{"country":"AUT"}},"regs":{"coppa":1},"user":{"token":"s3cret"}}`, "ssp/b", "video", nil},
		{`{` + video + `,"device":{"geo":{"country":"AUT"}},"regs":{"coppa":1.0}}`, "proxy/filtered", "video", nil},
		{`{` + video + `,"device":{"geo":{"country":"FRA"}}}`, "ssp/b", "rest", nil},
		{`{` + video + `,"device":{"geo":{"country":"AUT"}},"imp":[]}`, "ssp/b", "rest", nil},
		{`{` + video + `,"device":{"geo":{"country":"AUT"}}}`, "ssp/b", "rest", []string{"Content-Encoding: br"}},
		{``, "ssp/b", "rest", nil},
	} {
		got := ab.Post("/bid", row.body, row.fields...).WantStatus(row.body, 200).WantSource(row.source)
		noAd := got.Body == `<?xml version="1.0" encoding="UTF-8"?>`+"\n"+`<VAST version="4.2"/>`+"\n" && got.Header("Content-Type") == "application/xml; charset=utf-8"
		testsupport.Equal(t, noAd, row.source == "proxy/filtered", "%[2]s: a no-ad is %[1]v: %[3]s", row.body, got.Body)
		req, err := http.NewRequest("POST", "http://"+ab.TrafficAddr+"/bid", strings.NewReader(row.body))
		testsupport.NoError(t, err)
		for _, f := range row.fields {
			name, value, _ := strings.Cut(f, ": ")
			req.Header.Set(name, value)
		}
		res, err := client.Do(req)
		testsupport.NoError(t, err)
		res.Body.Close()
		if source := res.Header.Get("X-Adbuffer-Source"); source != row.source || res.ProtoMajor != 2 {
			t.Errorf("%s over %s: %s", row.body, res.Proto, source)
		}
	}
	envelope := ab.Post("/all", `{"x":2}`).WantStatus("envelope", 200)
	testsupport.True(t, strings.Contains(envelope.Body, `{"ssp":"b","error":"filtered"}`), "the envelope is %s", envelope.Body)
	ab.Get("/bid").WantSource("ssp/b")
	for labels, want := range map[string]float64{"video fill": 4, "video filtered": 2, "rest fill": 9, "all merged": 1} {
		route, outcome, _ := strings.Cut(labels, " ")
		ab.WantMetric(want, "adbuffer_requests_total", "route="+route, "outcome="+outcome)
	}
	ab.WantMetric(4, "adbuffer_ssp_requests_total", "ssp=a", "outcome=filtered")
	ab.WantMetric(3, "adbuffer_ssp_requests_total", "ssp=b", "outcome=filtered")
	for reason, want := range map[string]float64{"twice": 2, "encoding": 2, "not_object": 3, "syntax": 0, "depth": 0, "media_type": 0} {
		ab.WantMetric(want, "adbuffer_openrtb_unreadable_total", "reason="+reason)
	}
	for _, want := range []string{`"openrtb_unreadable":"twice"`, `"outcome":"filtered","source":"proxy/filtered"`, `"legs":[{"ssp":"a","outcome":"filtered","attempts":0,"total_ms":0},{"ssp":"b","outcome":"fill"`} {
		testsupport.Eventually(t, "the access log has "+want, func() bool { return strings.Contains(ab.Log.String(), want) })
	}

	explain := func(body string, args ...string) string {
		out, stderr, code := e2e.Run(t, nil, append(append([]string{"explain", "--config", e2e.WriteConfig(t, config), "--data", body}, args...), "/bid")...)
		testsupport.MustEqual(t, code, 0, "%d %s", stderr)
		testsupport.True(t, !strings.Contains(out, "s3cret") && !strings.Contains(out, "t0psecret"), "a secret is in %s", out)
		return out
	}
	out := explain(`{` + video + `,"device":{"geo":{"country":"FRA"}}}`)
	for _, want := range []string{"route     rest (single)", "passed    video", `device.geo.country must be in ["DEU", "AUT"], but it is "FRA"`} {
		testsupport.True(t, strings.Contains(out, want), "no %s in\n%s", want, out)
	}
	testsupport.True(t, !strings.Contains(out, "imp.*.video"), "a condition that holds is in\n%s", out)
	out = explain(`{` + video + `,"device":{"geo":{"country":"DEU"}},"regs":{"coppa":1},"user":{"token":"t0psecret"}}`)
	for _, want := range []string{
		"route     video (single)", `body: device.geo.country must be in ["DEU", "AUT"]`, "204 filtered", "filtered  regs.coppa must not be in [1], but it is 1",
		"filtered  user.token must be in [(hidden)], but it is (hidden)",
	} {
		testsupport.True(t, strings.Contains(out, want), "no %s in\n%s", want, out)
	}
	if out = explain(`{"imp":[],"imp":[]}`); !strings.Contains(out, "the body matches no condition, since it has the same member twice, on a configured path (twice)") {
		t.Errorf("explained as\n%s", out)
	}
	if out = explain(`{"imp":[]}`, "--json"); !strings.Contains(out, `imp.*.video must exist, but it is missing`) || !strings.Contains(out, `"passed"`) {
		t.Errorf("explained as\n%s", out)
	}
}
