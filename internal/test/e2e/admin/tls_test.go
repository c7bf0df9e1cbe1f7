package admin

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// secureAdmin starts adbuffer with TLS on an admin listener, on loopback or beyond.
func secureAdmin(t *testing.T, a *e2e.Authority, host, settings string) *e2e.Process {
	t.Helper()
	config := fmt.Sprintf("admin: {tls: {cert_file: %q, key_file: %q}%s}\n", a.File("cert.pem"), a.File("key.pem"), settings) + e2e.Single(e2e.Healthy(t).URL())
	ab := e2e.Launch(t, append(e2e.Patient(), "ADBUFFER_ADMIN_LISTEN="+host+":0"), "serve", "--config", e2e.WriteConfig(t, config))
	ab.AdminAddr = "127.0.0.1:" + testsupport.Port(t, ab.AdminAddr)
	ab.AdminTLS = a.ClientConfig(a)
	ab.AwaitReady()
	return ab
}

// askTLS sends a request to the admin listener. Status 0 means that the listener has refused the handshake by
// an alert.
func askTLS(ab *e2e.Process, config *tls.Config, path string, fields ...string) (status int, body string) {
	ab.T.Helper()
	ab.AdminTLS = config
	status, body, err := ab.TrySendAdmin("GET", path, "", fields...)
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" {
		return 0, err.Error()
	}
	testsupport.NoError(ab.T, err)
	return status, body
}

// This tests access to each path on a listener that other machines can reach.
func TestBeyondLoopbackAClientCertificateOrTheTokenGivesAccess(t *testing.T) {
	t.Parallel()
	a, other := e2e.NewAuthority(t), e2e.NewAuthority(t)
	a.Replace("token", "0123456789abcdef\n")
	ab := secureAdmin(t, a, "0.0.0.0", fmt.Sprintf(", client_ca_file: %q, token_file: %q", a.File("ca.pem"), a.File("token")))
	for _, row := range []struct {
		name          string
		config        *tls.Config
		token         string
		open, guarded int
	}{
		{"a certificate of the authority", a.ClientConfig(a), "", 200, 200},
		{"a certificate of another authority", a.ClientConfig(other), "", 0, 0},
		{"a certificate of another authority, and the token", a.ClientConfig(other), "0123456789abcdef", 0, 0},
		{"neither", a.ClientConfig(nil), "", 200, 403},
		{"the token", a.ClientConfig(nil), "0123456789abcdef", 200, 200},
		{"another token", a.ClientConfig(nil), "0123456789abcdeF", 200, 403},
	} {
		for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
			if status, _ := askTLS(ab, row.config, path, "Authorization", "Bearer "+row.token); status != row.open {
				t.Errorf("%s: %s responds with %d, want %d", row.name, path, status, row.open)
			}
		}
		for _, path := range []string{"/", "/overview", "/pools", "/history", "/config", "/log/level", "/debug/pprof/"} {
			if status, body := askTLS(ab, row.config, path, "Authorization", "Bearer "+row.token); status != row.guarded {
				t.Errorf("%s: %s responds with %d, want %d: %s", row.name, path, status, row.guarded, testsupport.Tail(body, 200))
			}
		}
	}
	testsupport.True(t, !strings.Contains(ab.Log.String(), "will respond 403"), "the log warns that every request gets 403")
	// Without TLS there is no response.
	res, err := http.Get("http://" + ab.AdminAddr + "/metrics")
	if err == nil {
		res.Body.Close()
		testsupport.Equal(t, res.StatusCode, 400, "without TLS /metrics responds with %d")
	}
	ab.AdminTLS = a.ClientConfig(a)
	ab.WantMetric(1, "adbuffer_tls_certificate_reload_successful", "listener=admin")
	// A change of the CA file is read too.
	a.Replace("ca.pem", string(other.PEM()))
	testsupport.Eventually(t, "the other authority's certificate opens it", func() bool { status, _ := askTLS(ab, a.ClientConfig(other), "/pools"); return status == 200 })
	if status, _ := askTLS(ab, a.ClientConfig(a), "/pools"); status != 0 {
		t.Errorf("a certificate of the previous authority gets %d", status)
	}
	ab.AdminTLS = a.ClientConfig(other)
}
