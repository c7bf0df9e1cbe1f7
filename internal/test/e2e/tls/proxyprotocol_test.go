package tls

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// These are two headers of the PROXY protocol for one client, 203.0.113.7, and the start of version
// 2.
const (
	proxyV1    = "PROXY TCP4 203.0.113.7 192.0.2.1 56324 443\r\n"
	proxyV2Sig = "\r\n\r\n\x00\r\nQUIT\n"
	proxyV2    = proxyV2Sig + "\x21\x11\x00\x0c\xcb\x00\x71\x07\xc0\x00\x02\x01\xdc\x04\x01\xbb"
	proxyLocal = proxyV2Sig + "\x20\x00\x00\x00"
)

func TestThePROXYHeaderOfATrustedPeerNamesTheClient(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	unix := "unix:" + filepath.Join(t.TempDir(), "ad.sock")
	for _, listen := range []string{"127.0.0.1:0", unix} {
		ab := e2e.Start(t, "server: {proxy_protocol: true}\n"+e2e.Single(s.URL()), "ADBUFFER_SERVER_LISTEN="+listen)
		for _, row := range []struct {
			name, header string
			fields       []string
			want         []string // the fields that the SSP receives
		}{
			{"version 1", proxyV1, nil, []string{"X-Forwarded-For: 203.0.113.7"}},
			{"version 2", proxyV2, nil, []string{"X-Forwarded-For: 203.0.113.7"}},
			{"a client that claims", proxyV2, []string{"X-Forwarded-For: 198.51.100.1", "X-Real-IP: 198.51.100.1"}, []string{"X-Forwarded-For: 203.0.113.7"}},
			{"a hop that is trusted", strings.Replace(proxyV1, "203.0.113.7", "127.0.0.9", 1), []string{"X-Forwarded-For: 198.51.100.1"}, []string{"X-Forwarded-For: 198.51.100.1"}},
			// The header has no addresses, so the proxy is the client. Fields never name loopback
			// or Unix sockets.
			{"a health check", proxyLocal, nil, nil},
			{"version 1, unknown", "PROXY UNKNOWN\r\n", nil, nil},
		} {
			c := ab.Dial()
			c.Send(row.header)
			for range 2 { // also for the next request on the connection
				c.Get("/fillbuffer", row.fields...).WantFill("openx")
				if got := e2e.IdentityFields(e2e.LastRequest(t, s)); !slices.Equal(got, row.want) {
					t.Errorf("%s at %s: the SSP received %q, want %q", row.name, listen, got, row.want)
				}
			}
			c.Close()
		}
		// The header arrives in pieces. The last piece contains the request.
		c := ab.Dial()
		for _, b := range []byte(proxyV2[:len(proxyV2)-1]) {
			c.Send(string([]byte{b}))
		}
		c.Send(proxyV2[len(proxyV2)-1:] + e2e.Request("GET", "/fillbuffer", ""))
		c.Read("GET").WantFill("openx")
		c.Close()
		testsupport.Equal(t, ab.Scrape().Sum("adbuffer_client_protocol_errors_total", "protocol=proxy"), 0, "%v headers were refused")
	}
}

// A reload changes which peers must send a PROXY header.
func TestAReloadChangesWhichPeersMustSendPROXYHeaders(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	config := func(trusted string) string {
		return "server: {proxy_protocol: true, trusted_proxies: " + trusted + "}\n" + e2e.Single(s.URL())
	}
	ab := e2e.Start(t, config("[127.0.0.0/8]"))
	kept := ab.Dial()
	kept.Send(proxyV1)
	kept.Get("/fillbuffer").WantFill("openx")
	ab.Take(config("[]"))
	ab.Get("/fillbuffer").WantFill("openx")
	for _, header := range []string{proxyV1, proxyV2} {
		c := ab.Dial()
		c.Send(header + e2e.Request("GET", "/fillbuffer", ""))
		c.Read("GET").WantStatus("untrusted", 400).WantSource("proxy/bad_request")
		c.WantClosed()
	}
	kept.Get("/fillbuffer").WantFill("openx")
	if got := e2e.IdentityFields(e2e.LastRequest(t, s)); !slices.Equal(got, []string{"X-Forwarded-For: 203.0.113.7"}) {
		t.Errorf("the SSP received %q", got)
	}
	kept.Close()
}
