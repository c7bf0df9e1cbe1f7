package proxy_test

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/logs"
	"adbuffer/internal/wire/openrtb"
)

// lines returns the access log's lines about the request with this id.
func (m *modeProxy) lines(id string) (all []map[string]any) {
	for _, e := range m.logs.FilterMessage("request").All() {
		if f := e.ContextMap(); f["id"] == id {
			all = append(all, f)
		}
	}
	return all
}

// line waits for the one line about a request.
func (m *modeProxy) line(t *testing.T, id string) map[string]any {
	t.Helper()
	testsupport.Eventually(t, "the log has the request "+id, func() bool { return len(m.lines(id)) > 0 })
	all := m.lines(id)
	testsupport.MustEqual(t, len(all), 1, "%d lines about %s", id)
	return all[0]
}

func wantFields(t *testing.T, line, want map[string]any) {
	t.Helper()
	for name, v := range want {
		testsupport.True(t, line[name] == v, "%s is %v (%T), want %v, in %v", name, line[name], line[name], v, line)
	}
}

func TestTheAccessLogHasALineForEachRequest(t *testing.T) {
	m := newModeProxy(t, route.Single, func(o *proxy.Options, rt *route.Route) {
		trustsLoopback(o, rt)
		rt.TruncateIP = true
	}, bids("a", `{"id":"1"}`), respondsWith("b", 503))
	m.do("POST", "/fill?consent=secret", "X-Request-Id: one", "Content-Length: 3", "X-Forwarded-For: 203.0.113.9", "Cookie: secret", "", "{ }")
	line := m.line(t, "one")
	wantFields(t, line, map[string]any{
		"method": "POST", "path": "/fill", "route": "r", "client": "203.0.113.0", "status": int64(200), "outcome": "fill", "source": "ssp/a", "ssp": "a",
		"protocol": "http1", "attempts": int64(1), "bytes_in": int64(3), "bytes_out": int64(10), "reused": false, "logged_for": "sample",
		"deadline_from": "deadline.default", "deadline_ms": 30_000.0, "tmax_ignored": "off",
	})
	if e := line["endpoint"]; e == nil || e != line["peer"] { // the test uses the address as its name
		t.Errorf("endpoint %v, peer %v", e, line["peer"])
	}
	for _, name := range []string{"pending_ms", "ttfb_ms", "total_ms"} {
		v, ok := line[name].(float64)
		testsupport.True(t, ok && v >= 0 && v <= 60_000, "%s is %v", name, line[name])
	}
	peer, _ := line["peer"].(string)
	testsupport.True(t, strings.HasPrefix(peer, "127.0.0.1:"), "peer is %s", peer)
	for name, v := range line {
		text, _ := v.(string)
		testsupport.True(t, !strings.Contains(text, "secret"), "%s: the log has the client's bytes: %s", name, text)
	}

	m.do("GET", "/fill/b", "X-Request-Id: two")
	wantFields(t, m.line(t, "two"), map[string]any{"status": int64(503), "outcome": "server_error", "ssp": "b", "logged_for": "sample"})
	m.do("HEAD", "/other", "X-Request-Id: four")
	wantFields(t, m.line(t, "four"), map[string]any{"method": "HEAD", "status": int64(404), "bytes_out": int64(0)})
	m.do("PUT", "/fi%0all?x", "X-Request-Id: three")
	wantFields(t, m.line(t, "three"), map[string]any{"method": "PUT", "path": "/fi%0all", "route": "none", "client": "127.0.0.0", "status": int64(405), "source": "proxy/method_not_allowed"})
}

// A body that cannot be edited for an SSP is in the log and the metrics. An explanation counts nothing.
func TestTheAccessLogSaysWhyABodyIsNotEdited(t *testing.T) {
	a := bids("a", `{}`)
	a.edit = openrtb.NewEdit(nil, openrtb.Set{Path: openrtb.MustParsePath("x"), How: openrtb.Append, Value: []byte("1")})
	m := newModeProxy(t, route.Single, trustsLoopback, a, bids("b", `{}`))
	for body, want := range map[string]any{`{"x":{}}`: "wrong_type", `{"x":[],"x":[]}`: "twice", `{"x":[ ]}`: nil} {
		before := m.p.Snapshot().Unreadable
		e := m.p.Explain(fmt.Appendf(nil, "POST /fill HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(body), body), netip.MustParseAddr("127.0.0.1"), func(string) string { return "a" })
		testsupport.True(t, e.Refusal == nil && m.p.Snapshot().Unreadable == before, "%s: an explanation counts as a request (%v)", body, e.Refusal)
		id := "to-" + strconv.Itoa(len(body))
		m.do("POST", "/fill", "X-Request-Id: "+id, fmt.Sprint("Content-Length: ", len(body)), "", body)
		line, counted := m.line(t, id), uint64(0)
		if want != nil {
			counted = 1
		}
		testsupport.True(t, line["openrtb_unreadable"] == want && m.p.Snapshot().Unreadable == before+counted, "%s: %v and %d more, want %v in %v", body, line["openrtb_unreadable"], m.p.Snapshot().Unreadable-before, want, line)
	}
}

func TestTheAccessLogHasEachLeg(t *testing.T) {
	for mode, want := range map[route.Mode][]string{
		route.ParallelAll:   {"server_error", "fill"},
		route.Waterfall:     {"server_error", "fill"},
		route.ParallelFirst: nil, // the first may be abandoned
	} {
		m := newModeProxy(t, mode, trustsLoopback, respondsWith("a", 503), bids("b", `{}`))
		m.do("GET", "/fill", "X-Request-Id: one")
		line := m.line(t, "one")
		legs, _ := line["legs"].([]any)
		testsupport.MustTrue(t, len(legs) == 2, "mode %v: legs %v", mode, legs)
		if want != nil {
			kept := m.requests.Failures()
			testsupport.True(t, len(kept) == 1 && kept[0].ID == "one" && kept[0].Legs[0].Failed && !kept[0].Legs[1].Failed && line["logged_for"] == "sample", "mode %v: the failures are %v", mode, kept)
		}
		for i, name := range []string{"a", "b"} {
			leg := legs[i].(map[string]any)
			testsupport.True(t, leg["ssp"] == name && (want == nil || leg["outcome"] == want[i]), "mode %v: leg %v", mode, leg)
			if want == nil {
				continue
			}
			for _, field := range []string{"peer", "endpoint", "protocol", "status", "attempts", "pending_ms", "ttfb_ms", "total_ms"} {
				testsupport.True(t, leg[field] != nil, "mode %v: no %s in %v", mode, field, leg)
			}
		}
	}
}

func TestFailuresAreLoggedThoughTheSampleIsZero(t *testing.T) {
	m := newModeProxy(t, route.Single, func(o *proxy.Options, rt *route.Route) {
		trustsLoopback(o, rt)
		o.Access = logs.AccessOptions{Enabled: true, Failures: true}
		rt.NoAdOnError, rt.Masked = true, route.Statuses{"4xx", "5xx"}
	}, bids("a", "{}"), respondsWith("b", 503), neverResponds("c"), bidder{name: "d", addr: "127.0.0.1:1"}, respondsWith("e", 404), bids("f", "{}"), respondsWith("g", 400))
	for id, c := range map[string]struct {
		target, source string
		status         int
	}{
		"ssp":     {"/fill/b", "ssp/b", 204},
		"late":    {"/fill/c", "proxy/deadline", 204},
		"refused": {"/fill/d", "proxy/connect_failed", 204},
	} {
		fields := []string{"X-Request-Id: " + id}
		if id == "late" {
			fields = append(fields, "X-Adbuffer-Timeout-Ms: 50")
		}
		m.do("GET", c.target, fields...)
		wantFields(t, m.line(t, id), map[string]any{"status": int64(c.status), "source": c.source, "logged_for": "failure"})
	}
	for id, target := range map[string]string{"fill": "/fill", "none": "/nowhere", "client": "/fill/e", "unknown": "/fill/h"} {
		m.do("GET", target, "X-Request-Id: "+id)
		all := m.lines(id)
		testsupport.True(t, len(all) == 0, "%s: no failure, but logged: %v", id, all)
	}

	m.do("GET", "/fill/g", "X-Request-Id: large", "User-Agent: "+strings.Repeat("x", 10_000))
	wantFields(t, m.line(t, "large"), map[string]any{"outcome": "client_error", "ssp": "g", "logged_for": "failure"})
	last := m.requests.Failures()[0]
	testsupport.True(t, last.ID == "large" && strings.HasPrefix(last.Error, "the SSP refuses the size of the request, whose target and fields have 10"), "the last failure is %+v", last)
	m.do("GET", "/fill/g", "X-Request-Id: small")
	testsupport.Equal(t, len(m.lines("small")), 0, "a 400 to a small request is logged %d times")

	m.route.Targets[4].SSP.SetRejecting(true)
	m.do("GET", "/fill/e", "X-Request-Id: rejected")
	wantFields(t, m.line(t, "rejected"), map[string]any{"outcome": "client_error", "ssp": "e", "logged_for": "failure"})
	testsupport.Equal(t, m.requests.Failures()[0].ID, "rejected", "the last failure is %s")

	m.await(0, openClients, "")
	o := m.options
	o.MaxConnections = 3
	m.p.Reload(o, route.NewTable([]*route.Route{m.same()}))
	var conns []net.Conn
	for range 3 {
		conns = append(conns, m.dialInBody())
	}
	conns = append(conns, m.dial())
	b, err := io.ReadAll(conns[3])
	testsupport.NoError(t, err)
	_, rest, _ := strings.Cut(string(b), "X-Request-Id: ")
	id, _, _ := strings.Cut(rest, "\r\n")
	wantFields(t, m.line(t, id), map[string]any{"route": "none", "client": "127.0.0.1", "status": int64(503), "source": "proxy/overloaded", "logged_for": "failure"})
}

func TestSlowRequestsAreLoggedThoughTheSampleIsZero(t *testing.T) {
	m := newModeProxy(t, route.Single, func(o *proxy.Options, rt *route.Route) {
		trustsLoopback(o, rt)
		o.Access = logs.AccessOptions{Enabled: true, Slow: time.Nanosecond}
	}, bids("a", "{}"))
	m.do("GET", "/fill", "X-Request-Id: one")
	wantFields(t, m.line(t, "one"), map[string]any{"status": int64(200), "logged_for": "slow"})
}

// The client of a request that is refused before it is routed is the one behind the trusted proxy, as for
// any other request, unless the request's head could not be read.
func TestTheClientOfARefusedRequestIsTheOneBehindTheProxy(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) {
		o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		o.Access, o.MaxBodyBytes, o.RequestIDField = logs.AccessOptions{Enabled: true, Sample: 1}, 10, "X-Request-Id"
	}), bids("a", "{}"))
	for _, row := range []struct {
		id, head, body, outcome, client string
	}{
		{"fill", "GET /fill", "", "fill", "203.0.113.9"},
		{"nowhere", "GET /nowhere", "", "no_route", "203.0.113.9"},
		{"unknown", "GET /fill/zz", "", "unknown_ssp", "203.0.113.9"},
		{"method", "PUT /fill", "", "method_not_allowed", "203.0.113.9"},
		{"target", "GET fill", "", "bad_request", "203.0.113.9"},
		{"large", "POST /fill", "Content-Length: 11\r\n\r\nhello world", "too_large", "203.0.113.9"},
		{"chunks", "POST /fill", "Transfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n", "too_large", "203.0.113.9"},
		{"broken", "POST /fill", "Transfer-Encoding: chunked\r\n\r\nzz\r\n", "bad_request", "203.0.113.9"},
		{"", "GET /fill", "A : b\r\n\r\n", "bad_request", "127.0.0.1"},
	} {
		c := m.dialTLS("http/1.1")
		fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.1, 203.0.113.9\r\nX-Request-Id: %s\r\n%s", row.head, row.id, cmp.Or(row.body, "\r\n"))
		io.Copy(io.Discard, io.LimitReader(c, 1))
		if row.id != "" {
			wantFields(t, m.line(t, row.id), map[string]any{"outcome": row.outcome, "client": row.client})
		} else {
			testsupport.Eventually(t, "the malformed head is logged with the peer", func() bool {
				for _, e := range m.logs.FilterMessage("request").All() {
					if f := e.ContextMap(); f["outcome"] == row.outcome && f["client"] == row.client {
						return true
					}
				}
				return false
			})
		}
		c.Close()
	}
	f := m.frames(t)
	for i, row := range []struct{ id, path, body, outcome string }{
		{"nowhere2", "/nowhere", "", "no_route"}, {"unknown2", "/fill/zz", "", "unknown_ssp"}, {"large2", "/fill", "hello world", "too_large"},
	} {
		method := "GET"
		if row.body != "" {
			method = "POST"
		}
		f.request(uint32(2*i+1), row.body == "", ":method", method, ":path", row.path, "x-forwarded-for", "203.0.113.9", "x-request-id", row.id)
		if row.body != "" {
			f.framer.WriteData(uint32(2*i+1), true, []byte(row.body))
		}
		wantFields(t, m.line(t, row.id), map[string]any{"outcome": row.outcome, "client": "203.0.113.9"})
	}
}
