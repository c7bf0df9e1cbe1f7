package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// adbuffer is a running process of the binary under test.
type adbuffer struct {
	t       testing.TB
	process *exec.Cmd
	log     *logBuffer
	ended   chan struct{}

	traffic, admin string // host:port, or for traffic the path of a unix socket
	network        string // of traffic

	exitIsTested bool // the test itself looks at how the process ended
}

// patient makes what the test is not about last long enough for a slow machine.
// It is the environment of the process; a test overrides what it is about.
var patient = []string{
	"ADBUFFER_SERVER_LISTEN=127.0.0.1:0",
	"ADBUFFER_SERVER_DRAIN_DELAY=0s",
	"ADBUFFER_ADMIN_LISTEN=127.0.0.1:0",
	"ADBUFFER_DEADLINE_DEFAULT=20s",
	"ADBUFFER_DEADLINE_MAX=30s",
	"ADBUFFER_SSP_DEFAULTS_TIMEOUTS_CONNECT=10s",
	"ADBUFFER_SSP_DEFAULTS_TIMEOUTS_TLS_HANDSHAKE=10s",
	"ADBUFFER_SSP_DEFAULTS_POOL_PENDING_TIMEOUT=10s",
	"GORACE=exitcode=66",
}

// start runs `adbuffer serve` with the configuration, and waits until it is
// ready. env are variables for it, NAME=value. At the end of the test it must
// have given everything back, and stop with exit status 0.
func start(t testing.TB, config string, env ...string) *adbuffer {
	t.Helper()
	file := filepath.Join(t.TempDir(), "adbuffer.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	ab := launch(t, append(patient[:len(patient):len(patient)], env...), "serve", "--config", file)
	ab.awaitReady()
	return ab
}

// launch runs the binary with these arguments, and returns when its listeners
// are open.
func launch(t testing.TB, env []string, args ...string) *adbuffer {
	t.Helper()
	return launchWith(t, env, (*adbuffer).findListeners, args...)
}

// findListeners finds the addresses of the listeners in the log.
func (ab *adbuffer) findListeners() bool {
	line, ok := ab.log.line("starting")
	if ok {
		ab.traffic, ab.admin = line["listen"].(string), line["admin"].(string)
	}
	return ok
}

// launchWith is launch where find finds the listeners' addresses in the log.
func launchWith(t testing.TB, env []string, find func(ab *adbuffer) bool, args ...string) *adbuffer {
	t.Helper()
	cmd := exec.Command(binary(t), args...)
	cmd.Env = append(os.Environ(), env...)
	return launchCommand(t, cmd, find)
}

// launchCommand is launchWith where cmd becomes the binary.
func launchCommand(t testing.TB, cmd *exec.Cmd, find func(ab *adbuffer) bool) *adbuffer {
	t.Helper()
	ab := &adbuffer{t: t, process: cmd, log: new(logBuffer), ended: make(chan struct{}), network: "tcp"}
	ab.process.Stdout, ab.process.Stderr = io.Discard, ab.log
	if err := ab.process.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		ab.process.Wait() //nolint:errcheck // ProcessState tells
		close(ab.ended)
	}()
	t.Cleanup(ab.stop)
	eventually(t, "the listeners are open", func() bool {
		if ab.hasEnded() {
			t.Fatalf("adbuffer ended:\n%s", ab.log)
		}
		return find(ab)
	})
	if strings.HasPrefix(ab.traffic, "/") {
		ab.network = "unix"
	}
	return ab
}

// single is a configuration with one SSP, openx, on one route, default. settings
// are more lines of the SSP.
func single(endpoint string, settings ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "ssps:\n  - name: openx\n    endpoints: [%q]\n", endpoint)
	for _, s := range settings {
		b.WriteString("    " + s + "\n")
	}
	b.WriteString("routes:\n  - name: default\n    match: {path: /fillbuffer}\n    ssps: [openx]\n")
	return b.String()
}

func (ab *adbuffer) awaitReady() {
	ab.t.Helper()
	eventually(ab.t, "/readyz answers 200", func() bool { status, _ := ab.ask("/readyz"); return status == http.StatusOK })
}

// ask asks the admin listener.
func (ab *adbuffer) ask(path string) (status int, body string) {
	ab.t.Helper()
	status, body, err := ab.tryAsk(path)
	if err != nil {
		ab.t.Fatalf("admin: %v\n%s", err, ab.log)
	}
	return status, body
}

func (ab *adbuffer) tryAsk(path string) (status int, body string, err error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	res, err := client.Get("http://" + ab.admin + path)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

func (ab *adbuffer) signal(s os.Signal) {
	ab.t.Helper()
	if err := ab.process.Process.Signal(s); err != nil {
		ab.t.Fatal(err)
	}
}

func (ab *adbuffer) hasEnded() bool {
	select {
	case <-ab.ended:
		return true
	default:
		return false
	}
}

// wantExit waits for the end of the process, which must have this exit status.
func (ab *adbuffer) wantExit(code int) {
	ab.t.Helper()
	ab.exitIsTested = true
	select {
	case <-ab.ended:
	case <-time.After(patience):
		ab.t.Fatalf("adbuffer did not end:\n%s", ab.log)
	}
	if got := ab.process.ProcessState.ExitCode(); got != code {
		ab.t.Errorf("exit status %d, want %d:\n%s", got, code, ab.log)
	}
}

// stop ends the process at the end of a test, and looks at what it left behind.
func (ab *adbuffer) stop() {
	ab.t.Helper()
	if !ab.hasEnded() && !ab.exitIsTested && !ab.t.Failed() {
		ab.wantNothingHeld()
	}
	if !ab.hasEnded() {
		ab.signal(syscall.SIGTERM)
		select {
		case <-ab.ended:
		case <-time.After(patience):
			ab.t.Error("adbuffer did not stop on SIGTERM")
			ab.signal(syscall.SIGQUIT) // for its goroutines
			<-ab.ended
		}
	}
	if code := ab.process.ProcessState.ExitCode(); code != 0 && !ab.exitIsTested {
		ab.t.Errorf("exit status %d, want 0", code)
	}
	text := ab.log.String()
	for _, bad := range []string{"DATA RACE", "panic", "BUG:", "fatal error"} {
		if strings.Contains(text, bad) {
			ab.t.Errorf("adbuffer's log has %q", bad)
		}
	}
	if ab.t.Failed() {
		ab.t.Logf("adbuffer's log:\n%s", tail(text, 16<<10))
	}
}

// wantNothingHeld checks that requests give everything back in the end: places,
// buffers, connections of clients, and the goroutines that served them.
func (ab *adbuffer) wantNothingHeld() {
	ab.t.Helper()
	left := ""
	end := time.Now().Add(patience)
	for {
		left = ab.held()
		if left == "" {
			return
		}
		if time.Now().After(end) {
			ab.t.Errorf("still held long after the last request: %s", left)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (ab *adbuffer) held() string {
	var left []string
	m := ab.scrape()
	for _, name := range []string{
		"adbuffer_in_flight_requests", "adbuffer_client_connections", "adbuffer_buffered_bytes",
		"adbuffer_pool_places_in_use", "adbuffer_pool_pending_requests",
	} {
		for _, s := range m.all(name) {
			if s.value != 0 {
				left = append(left, fmt.Sprintf("%s%s %v", name, s.labels, s.value))
			}
		}
	}
	if _, stacks := ab.ask("/debug/pprof/goroutine?debug=1"); strings.Contains(stacks, "internal/route.") ||
		strings.Contains(stacks, "proxy.(*Proxy).handle") || strings.Contains(stacks, "internal/ssp.") {
		left = append(left, "goroutines of requests:\n"+stacks)
	}
	return strings.Join(left, ", ")
}

// logBuffer is what a process wrote to its standard error.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// line returns the fields of the first line with this message.
func (l *logBuffer) line(message string) (fields map[string]any, ok bool) {
	for text := range strings.Lines(l.String()) {
		var f map[string]any
		if strings.HasSuffix(text, "\n") && json.Unmarshal([]byte(text), &f) == nil && f["msg"] == message {
			return f, true
		}
	}
	return nil, false
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

// command runs the binary to its end.
func command(t testing.TB, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, log bytes.Buffer
	cmd := exec.Command(binary(t), args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &out, &log
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), log.String(), cmd.ProcessState.ExitCode()
}
