package proxy_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"

	"adbuffer/internal/test/testsupport"
)

func TestProxyStatusMarksTheErrorsOfAdbufferAndNotThoseOfTheSSP(t *testing.T) {
	m := newModeProxy(t, route.Single, func(o *proxy.Options, _ *route.Route) {
		o.ProxyStatus = true
	}, bids("a", "{}"), respondsWith("b", 503), neverResponds("c"), bidder{name: "d", addr: "127.0.0.1:1"})
	for target, want := range map[string]string{
		"/fill":      `^adbuffer; next-hop="a"; next-protocol="http/1.1"; received-status=200$`,
		"/fill/b":    `^adbuffer; next-hop="b"; next-protocol="http/1.1"; received-status=503$`,
		"/fill/c":    `^adbuffer; error=http_response_timeout; next-hop="c"; next-protocol="http/1.1"; details=".*deadline.*"$`,
		"/fill/d":    `^adbuffer; error=connection_refused; next-hop="d"; details=".*refused.*"$`,
		"/nowhere":   `^adbuffer; error=destination_not_found; details=".*routes.*"$`,
		"/fill/none": `^adbuffer; error=destination_not_found; details=".*"$`,
	} {
		var fields []string
		if target == "/fill/c" {
			fields = append(fields, "X-Adbuffer-Timeout-Ms: 1000")
		}
		res, _ := m.do("GET", target, fields...)
		got := res.Header.Values("Proxy-Status")
		testsupport.True(t, len(got) == 1 && regexp.MustCompile(want).MatchString(got[0]), "%s: Proxy-Status %q, want %s", target, got, want)
	}
	m.options.ErrorDetail = false
	m.p.Reload(m.options, route.NewTable([]*route.Route{m.same()}))
	res, _ := m.do("GET", "/fill/d")
	testsupport.Equal(t, res.Header.Get("Proxy-Status"), "adbuffer; error=connection_refused", "without error_detail: %s")
}

func TestProxyStatusReplacesThatOfTheSSPAndNoOtherField(t *testing.T) {
	m := newModeProxy(t, route.Single, func(o *proxy.Options, _ *route.Route) { o.ProxyStatus = true },
		bidder{name: "a", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Proxy-Status", "ssp.example; received-status=200")
			w.Header().Set("X-After", "1")
			w.Write([]byte("{}"))
		}})
	res, _ := m.do("GET", "/fill")
	got := res.Header.Values("Proxy-Status")
	testsupport.True(t, len(got) == 1 && strings.HasPrefix(got[0], "adbuffer"), "Proxy-Status %q", got)
	testsupport.True(t, res.Header.Get("X-After") == "1", "fields are lost: %v", res.Header)
}

func TestProxyStatusIsNotAddedByDefault(t *testing.T) {
	m := newModeProxy(t, route.Single, nil, bids("a", "{}"))
	for _, target := range []string{"/fill", "/nowhere"} {
		res, _ := m.do("GET", target)
		for _, name := range []string{"Proxy-Status", "Retry-After"} {
			got := res.Header.Values(name)
			testsupport.True(t, len(got) == 0, "%s: %s %q", target, name, got)
		}
	}
}

// qps_limit and ssp_backoff have Retry-After too; package e2e tests their values.
func TestDrainingSaysWhenAnotherRequestMaySucceed(t *testing.T) {
	gone := bids("a", "{}")
	gone.removed = true
	for _, mode := range []route.Mode{route.Single, route.Waterfall, route.ParallelFirst} {
		m := newModeProxy(t, mode, nil, gone)
		res, body := m.do("GET", "/fill")
		if res.StatusCode != 503 || !strings.Contains(body, `"error":"draining"`) || res.Header.Get("Retry-After") != "1" {
			t.Errorf("mode %v: %d %s, Retry-After %q", mode, res.StatusCode, body, res.Header.Get("Retry-After"))
		}
	}
	refuses := newModeProxy(t, route.Single, nil, bidder{name: "a", addr: "127.0.0.1:1"})
	res, body := refuses.do("GET", "/fill")
	testsupport.True(t, res.StatusCode == 502 && res.Header.Get("Retry-After") == "", "%d %s, Retry-After %q", res.StatusCode, body, res.Header.Get("Retry-After"))
}
