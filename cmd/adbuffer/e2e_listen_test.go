package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Two headers of the PROXY protocol for one client, 203.0.113.7, and the start of
// version 2.
const (
	proxyV1    = "PROXY TCP4 203.0.113.7 192.0.2.1 56324 443\r\n"
	proxyV2Sig = "\r\n\r\n\x00\r\nQUIT\n"
	proxyV2    = proxyV2Sig + "\x21\x11\x00\x0c\xcb\x00\x71\x07\xc0\x00\x02\x01\xdc\x04\x01\xbb"
	proxyLocal = proxyV2Sig + "\x20\x00\x00\x00"
)

func TestThePROXYHeaderOfATrustedPeerSaysWhoTheClientIs(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	unix := "unix:" + filepath.Join(t.TempDir(), "ad.sock")
	for _, listen := range []string{"127.0.0.1:0", unix} {
		ab := start(t, "server: {proxy_protocol: true}\n"+single(s.URL()), "ADBUFFER_SERVER_LISTEN="+listen)
		for _, row := range []struct {
			name, header string
			fields       []string
			want         []string // what the SSP is told
		}{
			{"version 1", proxyV1, nil, []string{"X-Forwarded-For: 203.0.113.7"}},
			{"version 2", proxyV2, nil, []string{"X-Forwarded-For: 203.0.113.7"}},
			{"a client that claims", proxyV2, []string{"X-Forwarded-For: 198.51.100.1", "X-Real-IP: 198.51.100.1"}, []string{"X-Forwarded-For: 203.0.113.7"}},
			{"a hop that is trusted", strings.Replace(proxyV1, "203.0.113.7", "127.0.0.9", 1), []string{"X-Forwarded-For: 198.51.100.1"}, []string{"X-Forwarded-For: 198.51.100.1"}},
			// The proxy's own requests: loopback, or nobody on a unix socket, is not named.
			{"a health check", proxyLocal, nil, nil},
			{"version 1, unknown", "PROXY UNKNOWN\r\n", nil, nil},
		} {
			c := ab.dial()
			c.send(row.header)
			for range 2 { // and the next request on the connection
				c.get("/fillbuffer", row.fields...).wantFill("openx")
				if got := identityFields(lastRequest(t, s)); !slices.Equal(got, row.want) {
					t.Errorf("%s at %s: the SSP was told %q, want %q", row.name, listen, got, row.want)
				}
			}
			c.close()
		}
		// In pieces, the last with the request in it.
		c := ab.dial()
		for _, b := range []byte(proxyV2[:len(proxyV2)-1]) {
			c.send(string([]byte{b}))
		}
		c.send(proxyV2[len(proxyV2)-1:] + request("GET", "/fillbuffer", ""))
		c.read("GET").wantFill("openx")
		c.close()
		ab.wantMetric(7, "adbuffer_proxy_protocol_headers_total", "result=ok")
	}
}

func TestATrustedPeerWithoutAPROXYHeaderIsNotServed(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	ab := start(t, "server: {proxy_protocol: true, read_timeout: 300ms}\n"+single(s.URL()))
	// Those that say nothing are waited for, and nobody waits for them.
	var silent []*client
	for range 50 {
		c := ab.dial()
		c.send("PROXY TCP4 203")
		silent = append(silent, c)
	}
	good := ab.dial()
	good.send(proxyV1)
	good.get("/fillbuffer").wantFill("openx")
	good.close()
	for _, sent := range []string{request("GET", "/fillbuffer", ""), "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello", "proxy" + proxyV1[5:]} {
		c := ab.dial()
		c.send(sent)
		c.wantClosed()
	}
	for _, sent := range []string{strings.Replace(proxyV1, "TCP4", "TCP6", 1), proxyV1[:len(proxyV1)-2] + "\n" + request("GET", "/", ""), proxyV2Sig + "\x21\x11\xff\xff", "PROXY " + strings.Repeat("x", 200)} {
		c := ab.dial()
		c.send(sent)
		c.wantClosed()
	}
	for _, c := range silent {
		c.wantClosed()
	}
	wantAsked(t, s, 1)
	ab.awaitMetric(1, "adbuffer_proxy_protocol_headers_total", "result=ok")
	ab.awaitMetric(3, "adbuffer_proxy_protocol_headers_total", "result=missing")
	ab.awaitMetric(4, "adbuffer_proxy_protocol_headers_total", "result=malformed")
	ab.awaitMetric(50, "adbuffer_proxy_protocol_headers_total", "result=timeout")
}

func TestAPROXYHeaderOfAnyOtherPeerIsABadRequest(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	strangers := start(t, "server: {proxy_protocol: true, trusted_proxies: [192.0.2.0/24]}\n"+single(s.URL()))
	off := start(t, single(s.URL()))
	for name, ab := range map[string]*adbuffer{"a stranger": strangers, "off": off} {
		for _, header := range []string{proxyV1, proxyV2, proxyLocal, "PROXY UNKNOWN\r\n"} {
			c := ab.dial()
			c.send(header + request("GET", "/fillbuffer", ""))
			c.read("GET").wantStatus(name, 400).wantSource("proxy/bad_request")
			c.wantClosed()
		}
		ab.wantMetric(4, "adbuffer_requests_total", "route=none", "outcome=bad_request")
		ab.get("/fillbuffer").wantFill("openx") // as ever without one
	}
	wantAsked(t, s, 2)
}

// Reloads change whom the listener trusts.
func TestAReloadChangesWhosePROXYHeadersAreTaken(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	file := filepath.Join(t.TempDir(), "adbuffer.yaml")
	write := func(trusted string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("server: {proxy_protocol: true, trusted_proxies: "+trusted+"}\n"+single(s.URL())), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("[127.0.0.0/8]")
	ab := launch(t, patient, "serve", "--config", file)
	ab.awaitReady()
	kept := ab.dial()
	kept.send(proxyV1)
	kept.get("/fillbuffer").wantFill("openx")
	write("[]")
	ab.signal(syscall.SIGHUP)
	eventually(t, "the configuration was reloaded", func() bool { _, ok := ab.log.line("configuration reloaded"); return ok })
	ab.get("/fillbuffer").wantFill("openx")
	c := ab.dial()
	c.send(proxyV1 + request("GET", "/fillbuffer", ""))
	c.read("GET").wantStatus("untrusted", 400)
	kept.get("/fillbuffer").wantFill("openx")
	if got := identityFields(lastRequest(t, s)); !slices.Equal(got, []string{"X-Forwarded-For: 203.0.113.7"}) {
		t.Errorf("the SSP was told %q", got)
	}
	kept.close()
	c.close()
}

// A unix socket in a folder that is missing, or not ours, says so.
func TestPathsThatFailSayWhich(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "adbuffer.yaml")
	if err := os.WriteFile(file, []byte(single("http://127.0.0.1:1/")), 0o600); err != nil {
		t.Fatal(err)
	}
	long := filepath.Join(dir, strings.Repeat("x", 103-len(dir)))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	for listen, says := range map[string][]string{
		"unix:" + dir + "/none/ad.sock": {"server.listen", "the folder " + dir + "/none does not exist"},
		"unix:" + file:                  {"server.listen", "the path is a file that is not a socket"},
		"unix:" + file + "/ad.sock":     {"server.listen", file + " is not a folder"},
		"unix:/proc/ad.sock":            {"server.listen", "/proc"},
		"unix:" + long + "/a":           {"server.listen", "too long"},
	} {
		began := time.Now()
		_, stderr, code := command(t, append(patient[:len(patient):len(patient)], "ADBUFFER_SERVER_LISTEN="+listen), "serve", "--config", file)
		if code != 1 {
			t.Errorf("%s: exit status %d after %v", listen, code, time.Since(began))
		}
		for _, w := range says {
			if !strings.Contains(stderr, w) {
				t.Errorf("%s: %s\ndoes not say %q", listen, stderr, w)
			}
		}
	}
}
