//go:build !race

// These tests send hundreds of requests, one after the other. The race detector would make them take six times as long.

package proxy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/openrtb"
	"adbuffer/internal/wire/tcf"
)

// generated returns a random request; most of them are forwarded.
func generated(r *rand.Rand) []byte {
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	var b bytes.Buffer
	method := pick("GET", "GET", "POST", "POST", "HEAD", "PUT")
	fmt.Fprintf(&b, "%s %s%s HTTP/1.%s\r\nHost: %s\r\n", method, pick("/fill", "/fill", "/fill/a", "/fill/b", "/fill/none", "/other", "http://x.example/fill", "*", "/fi ll", "/../fill"),
		pick("", "?pub=1&x=%20", "?ssp=b&pub=1", "?pub=1&ssp=a&y", "?ssp=a&ssp=b", "?ssp=%61"), pick("1", "1", "1", "0"), pick("a", "ads.example:80", "b ad"))
	for range r.IntN(6) {
		b.WriteString(pick("User-Agent: phone", "X-Forwarded-For: 203.0.113.9, 127.0.0.1", "X-Device-IP: 192.0.2.1", "Cookie: a=b", "X-Internal: 1", "x_forwarded_for: 1", "Accept-Encoding: gzip",
			"Connection: X-Hop", "X-Hop: 1", "X-Adbuffer-Timeout-Ms: "+pick("60000", "1", "0", "x", "600000"), "X-Adbuffer-Ssp: "+pick("a", "b"), "X-Request-Id: "+pick("edge-1", "b ad"), "Empty:",
			"Via: 1.1 adbuffer-test", "bad line", "Expect: 100-continue", "TE: trailers", "X-Openrtb-Version: 2.5") + "\r\n")
	}
	if method == "POST" || r.IntN(20) == 0 {
		body := pick(`{"id":"1","tmax":60000}`, `{"id":"1"}`, "text", "", strings.Repeat("x", 3000))
		if r.IntN(3) == 0 {
			fmt.Fprintf(&b, "Transfer-Encoding: chunked\r\n\r\n")
			if body != "" {
				fmt.Fprintf(&b, "%x\r\n%s\r\n", len(body), body)
			}
			b.WriteString("0\r\n\r\n")
			return b.Bytes()
		}
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
		return b.Bytes()
	}
	b.WriteString("\r\n")
	return b.Bytes()
}

// Explain must predict how requests are handled. 1 000 generated requests are explained and then
// sent.
func TestExplainSaysWhatHappens(t *testing.T) {
	noBid := func(string) string { return "HTTP/1.1 204 No Content\r\n\r\n" }
	ssps := map[string]*rawSSP{"a": newRawSSP(t, noBid), "b": newRawSSP(t, noBid)}
	m := newModeProxy(t, route.Single, func(o *proxy.Options, rt *route.Route) {
		trustsLoopback(o, rt)
		o.Via, o.MaxBodyBytes, o.Deadline.OpenRTBTmax = "adbuffer-test", 2000, true
		o.Deadline.Reserve, o.Deadline.MinBudget = 5*time.Millisecond, 5*time.Millisecond
		o.Deadline.Default = 20 * time.Second
	}, bidder{name: "a", addr: ssps["a"].addr}, bidder{name: "b", addr: ssps["b"].addr})
	host := func(string) string { return "127.0.0.1" }
	r := rand.New(rand.NewPCG(1, 2))
	forwarded, refused := 0, make(map[string]int)
	for range 1000 {
		message := generated(r)
		e := m.p.Explain(message, netip.MustParseAddr("127.0.0.1"), host)
		res, body := m.exchange(t, message)
		for name, s := range ssps {
			if last := s.last(); last != "" {
				forwarded++
				m.wantExplained(t, message, e, name, last)
				if len(e.Requests) != 1 {
					continue
				}
			}
		}
		if e.Refusal == nil {
			testsupport.True(t, res.StatusCode == 204, "%q: explained as forwarded, and responded to with %d %s", message, res.StatusCode, body)
			continue
		}
		refused[e.Refusal.Outcome.String()]++
		var own struct{ Error, Detail string }
		json.Unmarshal([]byte(body), &own)
		if res.StatusCode != e.Refusal.StatusCode() || res.Header.Get("X-Adbuffer-Source") != "proxy/"+e.Refusal.Outcome.String() || body != "" && own.Detail != e.Refusal.Detail+"; see the runbook, entry "+e.Refusal.Outcome.String() {
			t.Errorf("%q: explained as %+v, and responded to with %d %s", message, *e.Refusal, res.StatusCode, body)
		}
	}
	t.Logf("%d requests were forwarded; refused: %v", forwarded, refused)
	testsupport.True(t, forwarded >= 100 && len(refused) >= 6, "%d requests were forwarded; refused: %v", forwarded, refused)
}

// contentLength matches the Content-Length field that the connection adds. Explain's request does
// not have it.
var contentLength = regexp.MustCompile("Content-Length: [0-9]+\r\n")

// wantExplained fails unless the SSP of this name got the request in e.
func (m *modeProxy) wantExplained(t *testing.T, message []byte, e *proxy.Explanation, name, got string) {
	t.Helper()
	if e.Refusal != nil || len(e.Requests) != 1 || e.Requests[0].Target.SSP.Name() != name {
		t.Errorf("%q: %s received the request, explained as %+v", message, name, e)
		return
	}
	q := &e.Requests[0].Request
	want := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n%s", q.Method, q.Target, q.Authority, q.Fields, q.Body)
	got = contentLength.ReplaceAllString(got, "")
	testsupport.True(t, got == want, "%q: the SSP got\n%q\nand it was explained as\n%q", message, got, want)
}

func TestExplainNamesTheSourceOfTheDeadline(t *testing.T) {
	m := newModeProxy(t, route.Waterfall, func(o *proxy.Options, rt *route.Route) {
		rt.Targets[0].Timeout = 60 * time.Millisecond
		o.Deadline = proxy.DeadlineOptions{Default: 300 * time.Millisecond, Max: time.Second, Header: "X-Adbuffer-Timeout-Ms", OpenRTBTmax: true, Reserve: 5 * time.Millisecond}
	}, respondsWith("a", 204), respondsWith("b", 204))
	for _, c := range []struct {
		field, body, from string
		ms                int
	}{
		{"", "{}", "deadline.default", 295},
		{"X-Adbuffer-Timeout-Ms: 200\r\n", "{}", "X-Adbuffer-Timeout-Ms", 195},
		{"", `{"tmax":100}`, "tmax", 95},
		{"X-Adbuffer-Timeout-Ms: 200\r\n", `{"tmax":100}`, "tmax", 95},
		{"X-Adbuffer-Timeout-Ms: 5000\r\n", "{}", "deadline.max", 995},
	} {
		message := fmt.Sprintf("POST /fill HTTP/1.1\r\nHost: a\r\n%sContent-Length: %d\r\n\r\n%s", c.field, len(c.body), c.body)
		e := m.p.Explain([]byte(message), netip.Addr{}, func(string) string { return "h" })
		if e.BudgetFrom != c.from || e.Budget != time.Duration(c.ms)*time.Millisecond || len(e.Requests) != 2 || (e.IgnoredTmax == "") != (c.from == "tmax") {
			t.Fatalf("%q: %v from %s, %d requests, tmax ignored: %s", message, e.Budget, e.BudgetFrom, len(e.Requests), e.IgnoredTmax)
		}
		if a, b := &e.Requests[0], &e.Requests[1]; a.BudgetFrom != "routes[].ssps[].timeout" || a.Budget != 60*time.Millisecond || b.BudgetFrom != c.from || b.Budget != e.Budget {
			t.Errorf("%q: %v from %s, then %v from %s", message, a.Budget, a.BudgetFrom, b.Budget, b.BudgetFrom)
		}
	}
}

func TestExplainOmitsAnSSPWithoutWeight(t *testing.T) {
	m := newModeProxy(t, route.Split, func(_ *proxy.Options, rt *route.Route) { rt.Targets[1].Weight = 0 }, respondsWith("a", 204), respondsWith("b", 204))
	for path, want := range map[string]string{"/fill": "a", "/fill/b": "b"} {
		e := m.p.Explain([]byte("GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n"), netip.Addr{}, func(string) string { return "h" })
		testsupport.True(t, len(e.Requests) == 1 && e.Requests[0].Target.SSP.Name() == want, "%s: %+v, want one request to %s", path, e.Requests, want)
	}
}

// A body in gzip is decoded for edits, which then decide by its consent. Conditions of SSPs cannot read it: for b, whose
// condition makes the route read the consent before the body is decoded, there is none.
func TestEditsReadTheConsentOfACompressedBody(t *testing.T) {
	needs := []openrtb.Condition{{TCF: &tcf.Requirement{Vendor: 76}}}
	a := respondsWith("a", 204)
	a.edit = openrtb.NewEdit([]openrtb.Removal{{Path: openrtb.MustParsePath("x"), When: needs}})
	m := newModeProxy(t, route.ParallelFirst, func(_ *proxy.Options, rt *route.Route) { rt.Targets[1].When = needs }, a, respondsWith("b", 204))
	const granting, denying = "CQdjfYAQdjfYAAKABAENAwFgAMIAAAJAAAYgAmQAQAmACZABACYAAAAA", "CQdjfYAQdjfYAAKABAENAwFgAMIAAAJAAAYgAAAAAAAA"
	for _, c := range []struct {
		consent, coding   string
		removed, filtered bool
	}{{granting, "identity", true, false}, {denying, "identity", false, true}, {granting, "gzip", true, true}, {denying, "gzip", false, true}} {
		rest := `"regs":{"gdpr":1},"user":{"consent":"` + c.consent + `"}}`
		body, want := `{"x":1,`+rest, `{"x":1,`+rest
		if c.removed {
			want = `{` + rest
		}
		if c.coding == "gzip" {
			body = testsupport.Gzip(body)
		}
		e := m.p.Explain(fmt.Appendf(nil, "POST /fill HTTP/1.1\r\nHost: h\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n%s", c.coding, len(body), body), netip.Addr{}, func(string) string { return "h" })
		testsupport.MustTrue(t, len(e.Requests) == 2, "%s in %s: %d requests", c.consent, c.coding, len(e.Requests))
		testsupport.Equal(t, string(e.Requests[0].Request.Body), want, "%[2]s in %[3]s: a gets %[1]s", c.consent, c.coding)
		testsupport.Equal(t, e.Requests[1].Filtered, c.filtered, "%[2]s in %[3]s: b is filtered: %[1]v", c.consent, c.coding)
	}
}
