package failing

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// startHAProxy runs Debian's HAProxy, which responds to requests itself, and returns its URL and the file of
// its authority. It has these protocols for ALPN.
func startHAProxy(t testing.TB, alpn string) (url, ca string) {
	t.Helper()
	dir := t.TempDir()
	authority, err := sspsim.NewCA()
	testsupport.NoError(t, err)
	cert, err := authority.ServerCert("127.0.0.1")
	testsupport.NoError(t, err)
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "cert.pem.key")
	testsupport.NoError(t, sspsim.WriteKeyPair(cert, certFile, keyFile))
	ca = filepath.Join(dir, "ca.pem")
	testsupport.NoError(t, authority.WriteFile(ca))
	addr, file := testsupport.FreeAddr(t), filepath.Join(dir, "haproxy.cfg")
	testsupport.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
global
	tune.bufsize 16384
defaults
	mode http
	timeout client 30s
	timeout server 30s
	timeout connect 5s
frontend ssp
	bind %s ssl crt %s alpn %s
	http-request return status 200 content-type application/json string "{}"
`, addr, certFile, alpn), 0o600))
	testsupport.StartDaemon(t, "tcp", addr, exec.Command(testsupport.Needs(t, "haproxy", "/usr/sbin/haproxy"), "-db", "-f", file))
	return "https://" + addr + "/bid", ca
}

// HAProxy resets the stream of a request with a field of 15.9 KB with PROTOCOL_ERROR. Such requests must not turn
// HTTP/2 off for all: an SSP that speaks only HTTP/2 would fail every request.
func TestRequestsThatHAProxyResetsDoNotTurnHTTP2OffForOthers(t *testing.T) {
	for _, alpn := range []string{"h2,http/1.1", "h2"} {
		t.Run(alpn, func(t *testing.T) {
			t.Parallel()
			url, ca := startHAProxy(t, alpn)
			ab := e2e.Start(t, e2e.Single(url, fmt.Sprintf("tls: {ca_file: %q}", ca), "breaker: {enabled: false}"))
			c := ab.Dial()
			large := "X-Large: " + strings.Repeat("x", 15900)
			c.Get("/fillbuffer").WantStatus("the first request", 200)
			for range 20 {
				for range 3 {
					testsupport.AtLeast(t, c.Get("/fillbuffer", large).Status, 400, "a request with a field of 15.9 KB gets %d")
				}
				for range 3 {
					c.Get("/fillbuffer").WantStatus("an ordinary request", 200)
				}
			}
			testsupport.Equal(t, ab.Pool("openx").Demotions, 0, "%d demotions")
		})
	}
}
