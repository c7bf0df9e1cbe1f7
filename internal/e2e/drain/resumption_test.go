package drain

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"adbuffer/internal/e2e"
	"adbuffer/internal/testsupport"
)

// opensslResumes connects with openssl s_client and a session from the file, or stores a
// new one there. It reports whether the session was resumed, and the whole output.
func opensslResumes(t *testing.T, addr string, a *e2e.Authority, version, option, file string) (bool, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "openssl", "s_client", "-connect", addr, "-servername", "localhost", "-CAfile", a.File("ca.pem"), "-ign_eof", version, option, file)
	cmd.Stdin = strings.NewReader("GET /nowhere HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	out, err := cmd.CombinedOutput() // it ends when adbuffer closes the connection
	text := string(out)
	if err != nil && !strings.Contains(text, "CONNECTED") {
		t.Fatalf("openssl: %v; install the Debian package openssl\n%s", err, text)
	}
	return strings.Contains(text, "Reused, TLS"), text
}

// A client resumes its session after a renewal of the certificate, and on the successor process. A
// process that requires a client certificate does not resume it.
func TestSessionsResumeAcrossReloadsAndHandovers(t *testing.T) {
	t.Parallel()
	testsupport.Long(t)
	for _, version := range []string{"-tls1_2", "-tls1_3"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s, a := e2e.Healthy(t), e2e.NewAuthority(t)
			env, session := shared(t, reservePort(t)), filepath.Join(t.TempDir(), "session.pem")
			config := func(more string) string { return a.TLSSection(more) + e2e.Single(s.URL()) }
			now := e2e.Start(t, config(""), env...)
			wantResumed := func(want bool) string {
				t.Helper()
				resumed, text := opensslResumes(t, now.TrafficAddr, a, version, "-sess_in", session)
				if resumed != want {
					t.Errorf("resumed: %v, want %v:\n%s", resumed, want, testsupport.Tail(text, 1500))
				}
				return text
			}
			if resumed, text := opensslResumes(t, now.TrafficAddr, a, version, "-sess_out", session); resumed || !strings.Contains(text, " 404 ") {
				t.Fatalf("the first handshake resumed: %v\n%s", resumed, text)
			}
			wantResumed(true)
			a.Renew()
			now.Signal(syscall.SIGHUP)
			testsupport.Eventually(t, "the new certificate is in use", func() bool { _, ok := now.Log.Line("certificates reloaded"); return ok })
			wantResumed(true)
			now.WantMetric(2, "adbuffer_client_tls_handshakes_total", "resumed=true")
			for range 2 { // a chain of processes
				next := e2e.Start(t, config(""), env...)
				now.Signal(syscall.SIGTERM)
				now.WantExit(0)
				now = next
				wantResumed(true)
				now.WantMetric(1, "adbuffer_client_tls_handshakes_total", "resumed=true")
				now.WantMetric(0, "adbuffer_client_tls_handshakes_total", "resumed=false")
			}
			next := e2e.Start(t, config(fmt.Sprintf(", client_ca_file: %q", a.File("ca.pem"))), env...)
			now.Signal(syscall.SIGTERM)
			now.WantExit(0)
			now = next
			if text := wantResumed(false); strings.Contains(text, " 404 ") {
				t.Errorf("a client without a certificate was served:\n%s", text)
			}
			now.AwaitMetric(1, "adbuffer_client_tls_handshake_errors_total", "reason=certificate")
			now.Signal(syscall.SIGTERM)
			now.WantExit(0)
		})
	}
}
