package failing

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// startSlowNginx runs nginx before an SSP that takes 30 ms. Like any nginx with default settings, it ends
// its HTTP/2 connections (ENHANCE_YOUR_CALM) at a field of more than 8 KiB, and states no limit beforehand.
func startSlowNginx(t *testing.T) (url, ca string) {
	t.Helper()
	slow := e2e.StartSSP(t, sspsim.Options{Behaviour: sspsim.Behaviour{Latency: sspsim.Constant(30 * time.Millisecond)}})
	dir := t.TempDir()
	authority, err := sspsim.NewCA()
	testsupport.NoError(t, err)
	cert, err := authority.ServerCert("127.0.0.1")
	testsupport.NoError(t, err)
	testsupport.NoError(t, sspsim.WriteKeyPair(cert, dir+"/cert.pem", dir+"/key.pem"))
	testsupport.NoError(t, authority.WriteFile(dir+"/ca.pem"))
	addr := testsupport.FreeAddr(t)
	testsupport.StartNginx(t, dir, addr, fmt.Sprintf(`
	server {
		listen %s ssl http2;
		ssl_certificate cert.pem;
		ssl_certificate_key key.pem;
		location / { proxy_pass %s; }
	}`, addr, strings.TrimSuffix(slow.URL(), "/bid")))
	return "https://" + addr + "/bid", dir + "/ca.pem"
}

// A client sends request after request with a field of 9 KB, and nginx ends the HTTP/2 connection of each.
// No request of the others is on these connections, and the breaker counts nothing.
func TestALargeFieldEndsNoConnectionOfOthers(t *testing.T) {
	t.Parallel()
	url, ca := startSlowNginx(t)
	for _, protocol := range []string{"auto", "http2"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			ab := e2e.Start(t, e2e.Single(url, "protocol: "+protocol, "tls: {ca_file: "+ca+"}"))
			ab.Get("/fillbuffer").WantFill("openx")
			const others, each, large = 16, 25, 10
			var tally, ofLarge e2e.Tally
			ab.Concurrently(others+1, func(w *e2e.Worker) error {
				if w.Id == others { // one after the other, while the others send
					for range large {
						a, err := w.Exchange("GET", "/fillbuffer?x="+strings.Repeat("x", 9<<10), "")
						if err != nil {
							return err
						}
						ofLarge.Add(a)
					}
					return nil
				}
				for range each {
					a, err := w.Exchange("GET", "/fillbuffer", "", from(w.Id))
					if err != nil {
						return err
					}
					tally.Add(a)
				}
				return nil
			})
			if n := tally.Of("ssp/openx 200"); n != 400 {
				t.Errorf("%d of 400 requests of the others were filled: %v", n, &tally)
			}
			if n := ofLarge.Of("proxy/too_large 413"); n != large {
				t.Errorf("%d of %d large requests were refused as too large: %v", n, large, &ofLarge)
			}
			ab.WantMetric(0, "adbuffer_breaker_shed_ratio", "ssp=openx")
			ab.WantMetric(0, "adbuffer_ssp_requests_total", "outcome=conn_lost")
			ab.WantMetric(0, "adbuffer_ssp_requests_total", "outcome=breaker_open")
		})
	}
}
