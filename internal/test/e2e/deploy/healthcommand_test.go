package deploy

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// health runs the command health with these variables. A slow machine exceeds the default timeout.
func health(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return e2e.Run(t, env, append([]string{"health", "--timeout", testsupport.Patience.String()}, args...)...)
}

func TestHealthReportsReadyDrainingAndStopped(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	// No other process gets the admin port after the end of this one.
	ab := e2e.Start(t, e2e.Single(s.URL()), "ADBUFFER_SERVER_DRAIN_DELAY=10m", "ADBUFFER_ADMIN_LISTEN="+testsupport.FreeAddr(t))
	file := e2e.WriteConfig(t, "admin: {listen: '"+ab.AdminAddr+"'}\n"+e2e.Single(s.URL()))
	broken := e2e.WriteConfig(t, "admin: {listen: '"+ab.AdminAddr+"'}\nssps: none\nroute: {}\n")
	ways := map[string]func() (stdout, stderr string, code int){
		"--admin": func() (string, string, int) {
			return health(t, nil, "--admin", "http://"+ab.AdminAddr+"/readyz")
		},
		"ADBUFFER_CONFIG": func() (string, string, int) { return health(t, []string{"ADBUFFER_CONFIG=" + file}) },
		// The service stays healthy if its configuration file becomes invalid.
		"a file with faults": func() (string, string, int) { return health(t, nil, "--config", broken) },
	}
	want := func(when string, code int, text string) {
		t.Helper()
		for name, ask := range ways {
			if stdout, stderr, got := ask(); got != code || !strings.Contains(stdout+stderr, text) {
				t.Errorf("%s, %s: exit status %d, want %d and %q: %s%s", when, name, got, code, text, stdout, stderr)
			}
		}
	}
	want("ready", 0, "ready")

	ab.BeginDrain()
	if _, stderr, code := health(t, nil, "--admin", "http://"+ab.AdminAddr+"/readyz"); code != 1 || !strings.Contains(stderr, "503") || !strings.Contains(stderr, "draining") {
		t.Errorf("draining: exit status %d, want 1: %s", code, stderr)
	}
	if stdout, _, code := health(t, nil, "--admin", "http://"+ab.AdminAddr+"/healthz"); code != 0 || stdout != "alive\n" {
		t.Errorf("/healthz while draining: exit status %d, want 0: %s", code, stdout)
	}
	ab.Terminate(0) // the second signal ends the waiting
	want("gone", 1, "connection refused")
}

// The health command connects to this machine's own admin address, which certificates rarely name.
// So it does not verify the certificate.
func TestHealthOfAnAdminListenerWithTLS(t *testing.T) {
	t.Parallel()
	ca, err := sspsim.NewCA()
	testsupport.NoError(t, err)
	cert, err := ca.ServerCert("adbuffer.example")
	testsupport.NoError(t, err)
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "admin.pem"), filepath.Join(dir, "admin.key")
	testsupport.NoError(t, sspsim.WriteKeyPair(cert, certFile, keyFile))
	s := e2e.Healthy(t)
	file := e2e.WriteConfig(t, fmt.Sprintf("admin: {listen: %q, tls: {cert_file: %q, key_file: %q}}\n", testsupport.FreeAddr(t), certFile, keyFile)+e2e.Single(s.URL()))
	env := []string{"ADBUFFER_SERVER_LISTEN=127.0.0.1:0", "ADBUFFER_SERVER_DRAIN_DELAY=0s"}
	ab := e2e.Launch(t, env, "serve", "--config", file)
	ab.ExitIsTested = true // the harness reads the metrics without TLS
	testsupport.Eventually(t, "health says that it is ready", func() bool {
		stdout, _, code := e2e.Run(t, nil, "health", "--config", file)
		return code == 0 && stdout == "ready\n"
	})
	ab.Terminate(0)
}
