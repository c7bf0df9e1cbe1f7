package forwarding

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// An SSP gets what set says, after remove, privacy and before rewrite_tmax, and a mirror what its own set says. explain
// shows the same body. A body whose members have the wrong types goes nowhere.
func TestMembersAreSetInBodies(t *testing.T) {
	t.Parallel()
	a, mirror := e2e.Healthy(t), e2e.Healthy(t)
	config := fmt.Sprintf(`
server: {max_body_bytes: 4096}
ssps:
  - name: a
    endpoints: [%q]
    rewrite_tmax: true
    remove: [{path: device.ifa}]
    set:
      - {path: source.schain, default: {ver: "1.0", complete: 1, nodes: []}}
      - {path: source.schain.nodes, append: {asi: exchange.example, sid: "12", hp: 1}}
      - {path: device.ifa, value: [], when: [{path: device.ifa, exists: true}]}
      - {path: source.net, append: 1, when: [{path: device.ip, in: [198.51.100.0]}]}
  - {name: mirror, endpoints: [%q], set: [{path: mirrored, value: true}]}
routes: [{name: r, match: {path: /bid}, ssps: [a], privacy: truncate_ip, mirror: {ssp: mirror, share: 1}}]
`, a.URL(), mirror.URL())
	ab := e2e.Start(t, config)
	const (
		plain    = `{"device":{"ip":"203.0.113.77","ifa":"x"},"tmax":29999,"source":{"schain":{"nodes":[{"sid":"0"}]}}}`
		sent     = `{"device":{"ip":"203.0.113.0","ifa":[]},"tmax":?,"source":{"schain":{"nodes":[{"sid":"0"},{"asi":"exchange.example","sid":"12","hp":1}]}}}`
		mirrored = `{"device":{"ip":"203.0.113.0","ifa":"x"},"tmax":29999,"source":{"schain":{"nodes":[{"sid":"0"}]}},"mirrored":true}`
	)
	withoutTmax := func(body string) string {
		return regexp.MustCompile(`"tmax":\d+,"source":{"schain":{"nodes":\[{"sid":"0"},`).ReplaceAllString(body, `"tmax":?,"source":{"schain":{"nodes":[{"sid":"0"},`)
	}
	for text, fields := range map[string][]string{plain: nil, testsupport.Gzip(plain): {"Content-Encoding: gzip"}} {
		before := len(mirror.Requests())
		ab.Post("/bid", text, fields...).WantFill("a")
		testsupport.Equal(t, withoutTmax(string(e2e.LastRequest(t, a).Body)), sent, "a got %s")
		testsupport.Eventually(t, "the mirror has its request", func() bool { return len(mirror.Requests()) > before })
		testsupport.Equal(t, string(e2e.LastRequest(t, mirror).Body), mirrored, "the mirror got %s")
	}
	n := len(a.Requests())
	for text, want := range map[string]string{
		`{"source":1}`: "ssps[].set cannot change the body", `{"source":{"schain":{"nodes":{}}}}`: "ssps[].set cannot change the body",
		`{"source":{},"s\u006furce":{}}`:                      "ssps[].remove and set cannot read the body",
		`{"device":{},"d\u0065vice":{}}`:                      "privacy: truncate_ip cannot read the body",
		`{"device":{"ip":"198.51.100.7"},"source":{"net":1}}`: "ssps[].set cannot change the body", // the condition sees the shortened address
	} {
		if e := e2e.ErrorOf(ab.Post("/bid", text).WantStatus(text, 400)); !strings.HasPrefix(e.Detail, want) {
			t.Errorf("%s: %+v", text, e)
		}
	}
	if e := e2e.ErrorOf(ab.Post("/bid", `{"x":"`+strings.Repeat("x", 4050)+`"}`).WantStatus("too long with set", 413)); !strings.Contains(e.Detail, "over 4096; see server.max_body_bytes") {
		t.Errorf("a body that is too long with set: %+v", e)
	}
	testsupport.Equal(t, len(a.Requests()), n, "an SSP got a body that could not be set: %v")
	ab.WantMetric(3, "adbuffer_openrtb_unreadable_total", "reason=wrong_type")
	explain := func(body string, args ...string) string {
		out, stderr, code := e2e.Run(t, nil, append([]string{"explain", "--config", e2e.WriteConfig(t, config), "--data", body, "/bid"}, args...)...)
		testsupport.MustEqual(t, code, 0, "%d %s", stderr)
		return out
	}
	explained := explain(plain, "--json")
	testsupport.True(t, strings.Contains(withoutTmax(strings.ReplaceAll(explained, `\"`, `"`)), sent), "explained as\n%s", explained)
	explained = explain(`{"source":1}`)
	testsupport.True(t, strings.Contains(explained, "400 bad_request") && strings.Contains(explained, "filtered  ssps[].set cannot change the body"), "explained as\n%s", explained)
}
