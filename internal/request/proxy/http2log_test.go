package proxy_test

import (
	"net/netip"
	"testing"

	"golang.org/x/net/http2"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

// A request over HTTP/2 that reaches no worker is counted and logged, as one over HTTP/1 is.
func TestRequestsOverHTTP2ThatAreNeverServedAreCountedAndLogged(t *testing.T) {
	for name, c := range map[string]struct {
		do      func(m *modeProxy, f *frames)
		outcome string
		want    map[string]any
	}{
		"reset by the client at once": {
			func(m *modeProxy, f *frames) {
				f.batch(func() {
					f.request(1, true, ":path", "/fill?x=1", "x-request-id", "one")
					f.framer.WriteRSTStream(1, http2.ErrCodeCancel)
				})
			},
			"client_gone", map[string]any{"id": "one", "method": "GET", "path": "/fill", "route": "r", "client": "127.0.0.1", "logged_for": "sample"},
		},
		"reset by the client within its body": {
			func(m *modeProxy, f *frames) {
				f.request(1, false, ":method", "POST", "x-request-id", "one")
				f.framer.WriteData(1, false, []byte("abc"))
				f.framer.WriteRSTStream(1, http2.ErrCodeCancel)
			},
			"client_gone", map[string]any{"id": "one", "method": "POST", "route": "r", "bytes_in": int64(3)},
		},
		"the client closes within its body": {
			func(m *modeProxy, f *frames) {
				f.request(1, false, ":method", "POST", "x-request-id", "one")
				m.awaitUploads(1)
				f.conn.Close()
			},
			"client_gone", map[string]any{"id": "one", "method": "POST", "route": "r"},
		},
		"a body of a wrong length": {
			func(m *modeProxy, f *frames) {
				f.request(1, false, ":method", "POST", "content-length", "5", "x-request-id", "one")
				f.framer.WriteData(1, true, []byte("abc"))
			},
			"bad_request", map[string]any{"id": "one", "method": "POST", "route": "r", "error": "a body that is not as long as its content-length"},
		},
		"a malformed header": {
			func(m *modeProxy, f *frames) { f.request(1, true, "connection", "close") },
			"bad_request", map[string]any{"route": "none", "client": "127.0.0.1", "logged_for": "sample"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) {
				o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
			}), bids("a", "{}"))
			c.do(m, m.frames(t))
			line := m.onlyLine(t)
			testsupport.Equal(t, m.seriesOf("adbuffer_requests_total", c.outcome, c.want["route"].(string)), 1, "%v requests are counted")
			wantFields(t, line, c.want)
			wantFields(t, line, map[string]any{"outcome": c.outcome, "status": int64(0)})
			testsupport.True(t, line["source"] == nil && (c.outcome != "bad_request" || line["error"] != nil), "the line is %v", line)
		})
	}
}

// onlyLine waits for the one line of the access log.
func (m *modeProxy) onlyLine(t *testing.T) map[string]any {
	t.Helper()
	testsupport.Eventually(t, "the log has a request", func() bool { return m.logs.FilterMessage("request").Len() > 0 })
	all := m.logs.FilterMessage("request").All()
	testsupport.MustEqual(t, len(all), 1, "%d lines")
	return all[0].ContextMap()
}
