package admin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"adbuffer/internal/e2e"
	"adbuffer/internal/testsupport"
)

func TestABundleHasAllPartsAndNoSecret(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, fmt.Sprintf(`
admin: {capture: true, flight_recorder: 5s}
ssps:
  - {name: openx, endpoints: ["%s?key=s3cret-1"], headers: {set: [{name: X-Partner, value: s3cret-2}]}}
routes:
  - {name: default, match: {path: /fillbuffer, query: [{name: api_key, value: s3cret-3}]}, ssps: [openx]}
`, s.URL()))
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				ab.Get("/fillbuffer?api_key=s3cret-3&pub=1", "Authorization: Bearer s3cret-4")
			}
		}
	}()
	file := filepath.Join(t.TempDir(), "bundle.zip")
	out, stderr, code := e2e.Run(t, nil, "bundle", "--admin", "http://"+ab.AdminAddr, "--seconds", "1", "--capture", "openx", "--out", file)
	close(stop)
	<-done
	if code != 0 || !strings.Contains(out, "11 parts") {
		t.Fatalf("%d %s %s", code, out, stderr)
	}
	parts := testsupport.ReadZip(t, file)
	for name, content := range parts {
		if strings.Contains(content, "s3cret") {
			t.Errorf("%s holds a secret", name)
		}
	}
	for name, want := range map[string]string{
		"config.yaml": "openx", "pools.json": "config_hash", "ssps.json": "openx", "history.json": "step_seconds", "failures.json": "failures", "metrics.txt": "adbuffer_requests_total",
		"goroutines.txt": "goroutine ", "heap.pprof": "\x1f\x8b", "cpu.pprof": "\x1f\x8b", "trace.out": "go 1.", "capture-openx.har": `"version": "1.2"`,
	} {
		if !strings.Contains(parts[name], want) {
			t.Errorf("%s has no %q: %.200q", name, want, parts[name])
		}
	}
}

// The exit status is 0 if the file has any part.
func TestABundlePrintsTheProblemsThatItMet(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, e2e.Single(s.URL()))
	bundle := func(ab *e2e.Process, args ...string) (out, stderr string, code int, file string) {
		t.Helper()
		file = filepath.Join(t.TempDir(), "bundle.zip")
		out, stderr, code = e2e.Run(t, nil, append([]string{"bundle", "--admin", "http://" + ab.AdminAddr, "--seconds", "1", "--out", file}, args...)...)
		return out, stderr, code, file
	}

	profile := make(chan struct{})
	ctx, end := context.WithCancel(t.Context())
	go func() {
		defer close(profile)
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+ab.AdminAddr+"/debug/pprof/profile?seconds=60", nil)
		http.DefaultClient.Do(req)
	}()
	testsupport.Eventually(t, "the first profile is being recorded", func() bool {
		_, stacks := ab.AskAdmin("/debug/pprof/goroutine?debug=1")
		return strings.Contains(stacks, "pprof.Profile+")
	})
	out, stderr, code, _ := bundle(ab, "--capture", "openx", "--capture", "nosuch")
	end()
	<-profile
	if code != 0 || !strings.Contains(out, ": 9 parts") {
		t.Errorf("%d %s", code, out)
	}
	for _, want := range []string{"cpu.pprof: ", "cpu profiling already in use", "capture-openx.har: ", "captures are off; see admin.capture", "capture-nosuch.har: "} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%q is not among the problems:\n%s", want, stderr)
		}
	}

	ab.Signal(syscall.SIGSTOP)
	out, stderr, code, file := bundle(ab, "--timeout", "50ms")
	ab.Signal(syscall.SIGCONT)
	if _, err := os.Stat(file); code != 1 || out != "" || strings.Count(stderr, "see --timeout") != 10 || !os.IsNotExist(err) {
		t.Errorf("by a process that responds to nothing: %d %s%s, file: %v", code, out, stderr, err)
	}
	if _, stderr, code, _ := bundle(ab, "--timeout", "0s"); code != 2 || !strings.Contains(stderr, "--timeout 0s is not above 0") {
		t.Errorf("%d %s", code, stderr)
	}

	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(strings.Repeat("t", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	beyond := e2e.Start(t, "admin: {token_file: \""+token+"\"}\n"+e2e.Single(s.URL()), "ADBUFFER_ADMIN_LISTEN=0.0.0.0:0")
	_, port, err := net.SplitHostPort(beyond.AdminAddr)
	if err != nil {
		t.Fatal(err)
	}
	beyond.AdminAddr = "127.0.0.1:" + port
	out, stderr, code, _ = bundle(beyond)
	if code != 0 || !strings.Contains(out, ": 1 parts") || strings.Count(stderr, "see --token-file and --cert-file") != 9 {
		t.Errorf("without the token: %d %s%s", code, out, stderr)
	}
	if out, stderr, code, _ = bundle(beyond, "--token-file", token); code != 0 || !strings.Contains(out, ": 10 parts") || stderr != "" {
		t.Errorf("with the token: %d %s%s", code, out, stderr)
	}
}
