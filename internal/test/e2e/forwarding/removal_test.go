package forwarding

import (
	"fmt"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// What an SSP must not get is removed from the body, the rest stays byte for byte, and a body that cannot be read
// goes nowhere.
func TestMembersAreRemovedAndAddressesShortenedInBodies(t *testing.T) {
	t.Parallel()
	a, b, mirror := e2e.Healthy(t), e2e.Healthy(t), e2e.Healthy(t)
	ab := e2e.Start(t, fmt.Sprintf(`
server: {max_body_bytes: 4096}
ssps:
  - name: a
    endpoints: [%q]
    rewrite_tmax: true
    remove: [{path: device.ifa, when: [{path: regs.coppa, in: [1]}]}, {path: user.eids}]
  - {name: b, endpoints: [%q]}
  - {name: rewrites, endpoints: [%q], rewrite_tmax: true}
  - {name: mirror, endpoints: [%q], rewrite_tmax: true}
routes:
  - {name: all, match: {path: /all}, mode: parallel-all, ssps: [a, b]}
  - {name: a, match: {path: /a}, ssps: [a]}
  - {name: private, match: {path: /private}, ssps: [b], privacy: truncate_ip}
  - {name: rewrites, match: {path: /rewrites}, ssps: [rewrites]}
  - {name: mirrored, match: {path: /mirrored}, ssps: [b], mirror: {ssp: mirror, share: 1}}
`, a.URL(), b.URL(), b.URL(), mirror.URL()))
	const body = `{ "regs":{"coppa":1} ,"device":{"ifa":"x" , "ua":"é"},"user" : {"id":1, "eids":[{"source":"s"}] } }`
	const without = `{ "regs":{"coppa":1} ,"device":{"ua":"é"},"user" : {"id":1 } }`
	for text, fields := range map[string][]string{body: nil, testsupport.Gzip(body): {"Content-Encoding: gzip"}, testsupport.Zstd(body): {"Content-Encoding: zstd"}} {
		ab.Post("/all", text, fields...).WantStatus("all", 200)
		testsupport.Equal(t, string(e2e.LastRequest(t, a).Body), without, "a got %s")
		last := e2e.LastRequest(t, b)
		testsupport.True(t, string(last.Body) == body && !strings.Contains(string(last.Head), "Content-Encoding"), "b got %s %s", last.Head, last.Body)
	}
	ab.Post("/a", `{"device":{"ifa":"x"},"user":{"eids":1},"tmax":29999}`).WantFill("a")
	if got := string(e2e.LastRequest(t, a).Body); !strings.HasPrefix(got, `{"device":{"ifa":"x"},"user":{},"tmax":`) || strings.Contains(got, "29999") {
		t.Errorf("a got %s", got)
	}
	ab.Post("/a", "").WantFill("a")
	ab.Post("/rewrites", testsupport.Gzip(`{"tmax":29999}`), "Content-Encoding: gzip").WantFill("rewrites")
	if last := e2e.LastRequest(t, b); !strings.HasPrefix(string(last.Body), `{"tmax":`) || strings.Contains(string(last.Body), "29999") || strings.Contains(string(last.Head), "Content-Encoding") {
		t.Errorf("tmax in gzip is rewritten to %s %q", last.Head, last.Body)
	}
	ab.Post("/mirrored", testsupport.Gzip(`{"tmax":29999}`), "Content-Encoding: gzip").WantFill("b")
	testsupport.Eventually(t, "the mirror gets the request", func() bool { return len(mirror.Requests()) == 1 })
	if last := e2e.LastRequest(t, mirror); !strings.HasPrefix(string(last.Body), `{"tmax":`) || strings.Contains(string(last.Body), "29999") {
		t.Errorf("the mirror got tmax in gzip as %s %q", last.Head, last.Body)
	}
	for _, unchanged := range []string{testsupport.Gzip(body)[1:], testsupport.Gzip(`{"x":"` + strings.Repeat("x", 5000) + `"}`)} { // no gzip, and too large
		ab.Post("/rewrites", unchanged, "Content-Encoding: gzip").WantFill("rewrites")
		last := e2e.LastRequest(t, b)
		testsupport.True(t, string(last.Body) == unchanged && strings.Contains(string(last.Head), "Content-Encoding: gzip"), "a body that cannot be decoded is sent as %s %q", last.Head, last.Body)
	}
	before := len(b.Requests())
	envelope := ab.Post("/all", `{"user":{"eids":1,"eids":2}}`).WantStatus("twice", 200).Body
	testsupport.True(t, strings.Contains(envelope, `{"ssp":"a","error":"filtered"}`) && len(b.Requests()) == before+1, "an unreadable body: %s", envelope)
	n := len(a.Requests())
	for text, fields := range map[string][]string{
		`{"user":{"eids":1`: nil, `[]`: nil, `{"user":1}`: {"Content-Encoding: br"}, testsupport.Gzip(body): {"Content-Encoding: gzip", "Content-Encoding: gzip"}, testsupport.Gzip(body)[1:]: {"Content-Encoding: gzip"}, "\x0a\x01x": {"Content-Type: application/x-protobuf"},
	} {
		for _, path := range []string{"/a", "/private"} {
			if e := e2e.ErrorOf(ab.Post(path, text, fields...).WantStatus(path+" "+text, 400)); !strings.Contains(e.Detail, "cannot read the body") {
				t.Errorf("%s: %+v", text, e)
			}
		}
	}
	ab.Post("/private", testsupport.Gzip(`{"x":"`+strings.Repeat("x", 5000)+`"}`), "Content-Encoding: gzip").WantStatus("a body that is too large when decoded", 413)
	testsupport.Equal(t, len(a.Requests()), n, "an SSP got a body that could not be read: %v")
	const private = `{"device":{"ip":"203.0.113.77", "ipv6":"2001:db8:1:2ff::7","geo":{"ip":"203.0.113.77"}},"x":1}`
	for text, fields := range map[string][]string{private: nil, testsupport.Gzip(private): {"Content-Encoding: gzip"}, testsupport.Zstd(private): {"Content-Encoding: zstd"}} {
		ab.Post("/private", text, fields...).WantFill("b")
		if got := string(e2e.LastRequest(t, b).Body); got != `{"device":{"ip":"203.0.113.0", "ipv6":"2001:db8:1:200::","geo":{"ip":"203.0.113.77"}},"x":1}` {
			t.Errorf("b got %s", got)
		}
	}
	ab.Post("/private", `{"device":{"ip":"unknown","ipv6":7},"x":1}`).WantFill("b")
	testsupport.Equal(t, string(e2e.LastRequest(t, b).Body), `{"device":{},"x":1}`, "b got %s")
	ab.Get("/private").WantFill("b")
}
