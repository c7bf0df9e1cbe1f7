package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"adbuffer/internal/sspsim"
)

func TestHealthTellsReadyFromDrainingAndGone(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	ab := start(t, single(s.URL()), "ADBUFFER_SERVER_DRAIN_DELAY=1m")
	file := writeConfig(t, "admin: {listen: '"+ab.admin+"'}\n"+single(s.URL()))
	broken := writeConfig(t, "admin: {listen: '"+ab.admin+"'}\nssps: none\nroute: {}\n")
	everywhere := writeConfig(t, "admin: {listen: ':"+ab.admin[strings.LastIndexByte(ab.admin, ':')+1:]+"'}\n")
	ways := map[string]func() (stdout, stderr string, code int){
		"--url":           func() (string, string, int) { return command(t, nil, "health", "--url", "http://"+ab.admin+"/readyz") },
		"--config":        func() (string, string, int) { return command(t, nil, "health", "--config", file) },
		"ADBUFFER_CONFIG": func() (string, string, int) { return command(t, []string{"ADBUFFER_CONFIG=" + file}, "health") },
		"ADBUFFER_ADMIN_LISTEN": func() (string, string, int) {
			return command(t, []string{"ADBUFFER_ADMIN_LISTEN=" + ab.admin}, "health")
		},
		// A file that the running service would not take over does not make it look dead.
		"a file with faults": func() (string, string, int) { return command(t, nil, "health", "--config", broken) },
		"every interface":    func() (string, string, int) { return command(t, nil, "health", "--config", everywhere) },
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

	ab.signal(syscall.SIGTERM)
	eventually(t, "draining", func() bool { _, ok := ab.log.line("draining"); return ok })
	if _, stderr, code := command(t, nil, "health", "--url", "http://"+ab.admin+"/readyz"); code != 1 || !strings.Contains(stderr, "503") || !strings.Contains(stderr, "draining") {
		t.Errorf("draining: exit status %d, want 1: %s", code, stderr)
	}
	if stdout, _, code := command(t, nil, "health", "--url", "http://"+ab.admin+"/healthz"); code != 0 || stdout != "alive\n" {
		t.Errorf("/healthz while draining: exit status %d, want 0: %s", code, stdout)
	}
	ab.signal(syscall.SIGTERM) // the second one ends the waiting
	ab.wantExit(0)
	want("gone", 1, "connection refused")
}

func TestHealthWithWrongUsageExitsWith2(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--url", "http://127.0.0.1:1/", "--config", "x.yaml"},
		{"--url", "127.0.0.1:9090"},
		{"--timeout", "0s"},
		{"now"},
	} {
		if _, stderr, code := command(t, nil, append([]string{"health"}, args...)...); code != 2 || stderr == "" {
			t.Errorf("%q: exit status %d, want 2: %s", args, code, stderr)
		}
	}
}

// On this machine nobody else can answer at admin's address, and certificates
// seldom name it: what they say is not looked at.
func TestHealthAsksAnAdminListenerWithTLS(t *testing.T) {
	t.Parallel()
	ca, err := sspsim.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.ServerCert("adbuffer.example")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "admin.pem"), filepath.Join(dir, "admin.key")
	if err := sspsim.WriteKeyPair(cert, certFile, keyFile); err != nil {
		t.Fatal(err)
	}
	s := healthy(t)
	file := writeConfig(t, sprintf("admin: {listen: %q, tls: {cert_file: %q, key_file: %q}}\n", freeAddr(t), certFile, keyFile)+single(s.URL()))
	env := []string{"ADBUFFER_SERVER_LISTEN=127.0.0.1:0", "ADBUFFER_SERVER_DRAIN_DELAY=0s"}
	ab := launch(t, env, "serve", "--config", file)
	ab.exitIsTested = true // what looks at the metrics afterwards speaks no TLS
	eventually(t, "health says that it is ready", func() bool {
		stdout, _, code := command(t, nil, "health", "--config", file)
		return code == 0 && stdout == "ready\n"
	})
	ab.signal(syscall.SIGTERM)
	ab.wantExit(0)
}
