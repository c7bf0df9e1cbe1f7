package main

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// secureAdmin starts adbuffer with TLS on an admin listener beyond loopback, or on
// it. Its end is for the test to see to: the harness asks without TLS.
func secureAdmin(t *testing.T, a *authority, host, settings string, env ...string) *adbuffer {
	t.Helper()
	config := sprintf("admin: {tls: {cert_file: %q, key_file: %q}%s}\n", a.file("cert.pem"), a.file("key.pem"), settings) + single(healthy(t).URL())
	env = append(append(patient[:len(patient):len(patient)], "ADBUFFER_ADMIN_LISTEN="+host+":0"), env...)
	ab := launch(t, env, "serve", "--config", writeConfig(t, config))
	ab.exitIsTested = true
	_, port, err := net.SplitHostPort(ab.admin)
	if err != nil {
		t.Fatal(err)
	}
	ab.admin = "127.0.0.1:" + port
	eventually(t, "ready", func() bool { _, ok := ab.log.line("ready"); return ok })
	return ab
}

// askTLS asks the admin listener over TLS. A status of 0 is a handshake that failed.
func (ab *adbuffer) askTLS(config *tls.Config, path string, fields ...string) (status int, body string) {
	ab.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}, Timeout: patience}
	req, err := http.NewRequest("GET", "https://"+ab.admin+path, nil)
	if err != nil {
		ab.t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	res, err := client.Do(req)
	var op *net.OpError
	switch {
	case errors.As(err, &op) && op.Op == "remote error": // an alert
		return 0, err.Error()
	case err != nil:
		ab.t.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	b, err := io.ReadAll(res.Body)
	if err != nil {
		ab.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// Who may see what on a listener that other machines reach.
func TestBeyondLoopbackAClientCertificateOrTheTokenOpensTheAdminListener(t *testing.T) {
	t.Parallel()
	a, other := newAuthority(t), newAuthority(t)
	a.replace("token", []byte("0123456789abcdef\n"))
	ab := secureAdmin(t, a, "0.0.0.0", sprintf(", client_ca_file: %q, token_file: %q", a.file("ca.pem"), a.file("token")))
	for _, row := range []struct {
		name          string
		config        *tls.Config
		token         string
		open, guarded int
	}{
		{"a certificate of the authority", a.client(a), "", 200, 200},
		{"a certificate of another authority", a.client(other), "", 0, 0},
		{"a certificate of another authority, and the token", a.client(other), "0123456789abcdef", 0, 0},
		{"neither", a.client(nil), "", 200, 403},
		{"the token", a.client(nil), "0123456789abcdef", 200, 200},
		{"another token", a.client(nil), "0123456789abcdeF", 200, 403},
	} {
		for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
			if status, _ := ab.askTLS(row.config, path, "Authorization", "Bearer "+row.token); status != row.open {
				t.Errorf("%s: %s answers %d, want %d", row.name, path, status, row.open)
			}
		}
		for _, path := range []string{"/", "/pools", "/history", "/config", "/log/level", "/debug/pprof/"} {
			if status, body := ab.askTLS(row.config, path, "Authorization", "Bearer "+row.token); status != row.guarded {
				t.Errorf("%s: %s answers %d, want %d: %s", row.name, path, status, row.guarded, tail(body, 200))
			}
		}
	}
	if strings.Contains(ab.log.String(), "will answer 403") {
		t.Error("a warning that nobody may ask")
	}
	// Without TLS there is nothing to be had.
	res, err := http.Get("http://" + ab.admin + "/metrics") //nolint:noctx // loopback
	if err == nil {
		res.Body.Close() //nolint:errcheck // only its status matters
		if res.StatusCode != 400 {
			t.Errorf("without TLS /metrics answers %d", res.StatusCode)
		}
	}
	// The authority, too, is read again when it changes.
	a.replace("ca.pem", other.PEM())
	eventually(t, "the other authority's certificate opens it", func() bool { status, _ := ab.askTLS(a.client(other), "/pools"); return status == 200 })
	if status, _ := ab.askTLS(a.client(a), "/pools"); status != 0 {
		t.Errorf("a certificate of the authority before is answered %d", status)
	}
	ab.signal(syscall.SIGTERM)
	ab.wantExit(0)
}

func TestOnLoopbackTLSAsksForNothingMore(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	ab := secureAdmin(t, a, "127.0.0.1", "")
	for _, path := range []string{"/metrics", "/pools", "/"} {
		if status, _ := ab.askTLS(a.client(nil), path); status != 200 {
			t.Errorf("%s answers %d", path, status)
		}
	}
	before := serialOf(t, ab, a)
	a.renew()
	eventually(t, "the new certificate is shown", func() bool { return serialOf(t, ab, a) != before })
	_, metrics := ab.askTLS(a.client(nil), "/metrics")
	if !strings.Contains(metrics, `adbuffer_tls_certificate_reload_successful{listener="admin"} 1`) {
		t.Error("there is no metric about the certificate")
	}
	ab.signal(syscall.SIGTERM)
	ab.wantExit(0)
}

func serialOf(t *testing.T, ab *adbuffer, a *authority) string {
	t.Helper()
	c, err := tls.Dial("tcp", ab.admin, a.client(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // nothing is left to be done about it
	return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

func TestPrometheusScrapesOverTLSWithoutACertificateOfItsOwn(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	ab := secureAdmin(t, a, "0.0.0.0", sprintf(", client_ca_file: %q", a.file("ca.pem")))
	p := startPrometheus(t, ab, "scheme: https", sprintf("tls_config: {ca_file: %q, server_name: localhost}", a.file("ca.pem")))
	p.await(`up{job="adbuffer"}`, 1)
	ab.signal(syscall.SIGTERM)
	ab.wantExit(0)
}
