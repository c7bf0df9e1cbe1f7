package main

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

func TestHealthReadsTheAddressFromTheConfiguration(t *testing.T) {
	for _, row := range []struct {
		text, listen, cert string // the file; the variables
		want               string
	}{
		{want: "http://127.0.0.1:9090/readyz"},
		{text: "admin: {listen: '127.0.0.1:9191'}", want: "http://127.0.0.1:9191/readyz"},
		{text: "admin: {listen: ':9191'}", want: "http://127.0.0.1:9191/readyz"},
		{text: "admin: {listen: '0.0.0.0:9191'}", want: "http://127.0.0.1:9191/readyz"},
		{text: "admin: {listen: '[::]:9191'}", want: "http://[::1]:9191/readyz"},
		{text: "admin: {listen: '10.1.2.3:9191'}", want: "http://10.1.2.3:9191/readyz"},
		{text: "admin: {listen: '127.0.0.1:9191', tls: {cert_file: a.pem}}", want: "https://127.0.0.1:9191/readyz"},
		{text: "%YAML 1.2\n---\nadmin: {listen: '127.0.0.1:9191'}", want: "http://127.0.0.1:9191/readyz"},
		{text: "admin: {listen: '127.0.0.1:9191'}", listen: "127.0.0.1:9292", cert: "a.pem", want: "https://127.0.0.1:9292/readyz"},
		{text: "admin: {listen: '127.0.0.1:9191'}\nssps: 5\nrutes: []", want: "http://127.0.0.1:9191/readyz"},
		{text: "\tno: YAML", want: "http://127.0.0.1:9090/readyz"},
	} {
		t.Setenv("ADBUFFER_ADMIN_LISTEN", row.listen)
		t.Setenv("ADBUFFER_ADMIN_TLS_CERT_FILE", row.cert)
		got, err := healthTarget("", writeFile(t, row.text))
		if err != nil || got != (health{row.want, true}) {
			t.Errorf("%q: %v, %v; want %s", row.text, got, err, row.want)
		}
	}
	t.Setenv("ADBUFFER_ADMIN_LISTEN", "")
	t.Setenv("ADBUFFER_ADMIN_TLS_CERT_FILE", "")
	if got, err := healthTarget("", "there-is-none.yaml"); err != nil || got.url != "http://127.0.0.1:9090/readyz" {
		t.Errorf("no file: %v, %v", got, err)
	}
	for _, listen := range []string{"127.0.0.1:0", "9090"} {
		if got, err := healthTarget("", writeFile(t, "admin: {listen: '"+listen+"'}")); err == nil || !strings.Contains(err.Error(), "--admin") {
			t.Errorf("admin.listen %s: %v, %v; want an error that names --admin", listen, got, err)
		}
	}
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "adbuffer.yaml")
	testsupport.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func TestHealthVerifiesCertificatesOfOtherMachinesOnly(t *testing.T) {
	for url, here := range map[string]bool{
		"https://127.0.0.1:1/readyz": true, "https://[::1]:1/": true, "https://LOCALHOST:1/": true,
		"https://10.1.2.3:1/": false, "https://adbuffer.example/": false, "https://127.0.0.1.example/": false,
	} {
		if got, err := healthTarget(url, ""); err != nil || got.here != here {
			t.Errorf("%s: %v, %v", url, got, err)
		}
	}
	for _, url := range []string{"127.0.0.1:9090", "ftp://127.0.0.1/", "http:///readyz", "http://%zz/"} {
		if got, err := healthTarget(url, ""); err == nil {
			t.Errorf("%s: %v, want an error", url, got)
		}
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ready\n")) }))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // the test makes a handshake fail
	s.StartTLS()
	defer s.Close()
	if got, err := askHealth(t.Context(), health{s.URL, true}); err != nil || got != "ready" {
		t.Errorf("on this machine: %q, %v", got, err)
	}
	if _, err := askHealth(t.Context(), health{s.URL, false}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("elsewhere: %v, want an error about the certificate", err)
	}
}

func TestHealthFollowsNoRedirect(t *testing.T) {
	s := httptest.NewServer(http.RedirectHandler("/elsewhere", http.StatusFound))
	defer s.Close()
	if _, err := askHealth(t.Context(), health{s.URL, true}); err == nil || !strings.Contains(err.Error(), "302") {
		t.Errorf("%v, want an error with the status", err)
	}
}

func TestHealthGivesUpAfterItsTimeout(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ended }))
	defer s.Close()
	defer close(ended)
	_, stderr, code := runHere(t, "health", "--admin", s.URL, "--timeout", (50 * time.Millisecond).String())
	if code != 1 || !strings.Contains(stderr, "not ready") || !strings.Contains(stderr, "deadline exceeded") {
		t.Errorf("exit status %d, want 1: %s", code, stderr)
	}
}
