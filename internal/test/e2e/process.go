package e2e

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// Process is a running process of the binary under test.
type Process struct {
	*testsupport.Daemon
	TrafficAddr, AdminAddr string      // host:port, or for traffic the path of a Unix socket
	Network                string      // of traffic
	AdminTLS               *tls.Config // of a client of the admin listener; nil for a listener without TLS
	File                   string      // the configuration

	ExitIsTested bool // the test itself checks how the process ended
}

// Start runs `adbuffer serve` with the configuration in a file of its own, and waits until it is ready.
// Timeouts that the configuration does not set are long. env are variables for it, NAME=value. At the
// end of the test it must hold no resources, and stop with exit status 0.
func Start(t testing.TB, config string, env ...string) *Process {
	t.Helper()
	return Serve(t, WriteConfig(t, config), append(patientFor(config), env...)...)
}

// Serve is Start with a file, and with the environment env alone.
func Serve(t testing.TB, file string, env ...string) *Process {
	t.Helper()
	ab := Launch(t, env, "serve", "--config", file)
	ab.File = file
	ab.AwaitReady()
	return ab
}

// Launch runs the binary with these arguments, and returns when its listeners
// are open.
func Launch(t testing.TB, env []string, args ...string) *Process {
	t.Helper()
	return LaunchCommand(t, Command(t, env, args...), (*Process).FindListeners)
}

// Command is the binary with these arguments, and with env added to the test's environment.
func Command(t testing.TB, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(Binary(t), args...)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// FindListeners finds the addresses of the listeners in the log.
func (ab *Process) FindListeners() bool {
	line, ok := ab.Log.Line("starting")
	if ok {
		ab.TrafficAddr, ab.AdminAddr = line["listen"].(string), line["admin"].(string)
	}
	return ok
}

// LaunchCommand runs a command that is or becomes the binary. It returns when find has found the
// addresses of the open listeners in the log.
func LaunchCommand(t testing.TB, cmd *exec.Cmd, find func(ab *Process) bool) *Process {
	t.Helper()
	ab := &Process{Network: "tcp"}
	testsupport.Launch(t, cmd, func(d *testsupport.Daemon) bool {
		ab.Daemon = d
		return find(ab)
	})
	t.Cleanup(ab.Stop)
	if strings.HasPrefix(ab.TrafficAddr, "/") {
		ab.Network = "unix"
	}
	return ab
}

// Single is a configuration with one SSP, openx, on one route, default. settings are additional
// lines of the SSP.
func Single(endpoint string, settings ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "ssps:\n  - name: openx\n    endpoints: [%q]\n", endpoint)
	for _, s := range settings {
		b.WriteString("    " + s + "\n")
	}
	b.WriteString("routes:\n  - name: default\n    match: {path: /fillbuffer}\n    ssps: [openx]\n")
	return b.String()
}

// AwaitReady waits until /readyz responds 200.
func (ab *Process) AwaitReady() {
	ab.T.Helper()
	testsupport.Eventually(ab.T, "/readyz responds with 200", func() bool { status, _ := ab.AskAdmin("/readyz"); return status == http.StatusOK })
}

// BeginDrain sends SIGTERM, and waits until adbuffer drains.
func (ab *Process) BeginDrain() {
	ab.T.Helper()
	ab.Signal(syscall.SIGTERM)
	ab.WantLogged("draining")
}

// WantExit waits for the end of the process, which must have this exit status.
func (ab *Process) WantExit(code int) {
	ab.T.Helper()
	ab.ExitIsTested = true
	testsupport.MustTrue(ab.T, ab.ends(), "adbuffer did not end:\n%s", ab.Log)
	testsupport.Equal(ab.T, ab.Cmd.ProcessState.ExitCode(), code, "exit status %[1]d:\n%[2]s", ab.Log)
}

// Terminate sends SIGTERM, and waits for the end of the process, which must have this exit status.
func (ab *Process) Terminate(code int) {
	ab.T.Helper()
	ab.Signal(syscall.SIGTERM)
	ab.WantExit(code)
}

// ends waits for the end of the process, and reports whether it came.
func (ab *Process) ends() bool {
	select {
	case <-ab.Ended():
		return true
	case <-time.After(testsupport.Patience):
		return false
	}
}

// Stop ends the process at the end of a test, and checks for leaks.
func (ab *Process) Stop() {
	ab.T.Helper()
	if !ab.HasEnded() && !ab.ExitIsTested && !ab.T.Failed() {
		ab.wantNothingHeld()
	}
	if !ab.HasEnded() {
		ab.Signal(syscall.SIGTERM)
		if !ab.ends() {
			ab.T.Error("adbuffer did not stop on SIGTERM")
			ab.Signal(syscall.SIGQUIT) // for a dump of its goroutines
			<-ab.Ended()
		}
	}
	if !ab.ExitIsTested {
		testsupport.Equal(ab.T, ab.Cmd.ProcessState.ExitCode(), 0, "exit status %d")
	}
	text := ab.Log.String()
	for _, bad := range []string{"DATA RACE", "panic", "BUG:", "fatal error"} {
		testsupport.True(ab.T, !strings.Contains(text, bad), "adbuffer's log has %q", bad)
	}
}

// wantNothingHeld checks that requests have released everything at the end: places, buffers,
// connections of clients, and the goroutines that served them.
func (ab *Process) wantNothingHeld() {
	ab.T.Helper()
	end := time.Now().Add(testsupport.Patience)
	for left := ab.held(); left != ""; left = ab.held() {
		if time.Now().After(end) {
			ab.T.Errorf("still held long after the last request: %s", left)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (ab *Process) held() string {
	var left []string
	m := ab.Scrape()
	for _, name := range []string{
		"adbuffer_in_flight_requests", "adbuffer_client_connections", "adbuffer_buffered_bytes",
		"adbuffer_pool_places_in_use", "adbuffer_pool_pending_requests",
	} {
		for _, s := range m.All(name) {
			if s.Value != 0 {
				left = append(left, s.String())
			}
		}
	}
	if _, stacks := ab.AskAdmin("/debug/pprof/goroutine?debug=1"); strings.Contains(stacks, "internal/request/route.") ||
		strings.Contains(stacks, "proxy.(*Proxy).handle") || strings.Contains(stacks, "internal/ssp/ssp.") {
		left = append(left, "goroutines of requests:\n"+stacks)
	}
	return strings.Join(left, ", ")
}

// Run runs the binary to its end.
func Run(t testing.TB, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, log bytes.Buffer
	cmd := Command(t, env, args...)
	cmd.Stdout, cmd.Stderr = &out, &log
	err := cmd.Run()
	testsupport.MustTrue(t, cmd.ProcessState != nil, "%v", err)
	return out.String(), log.String(), cmd.ProcessState.ExitCode()
}

// WriteConfig writes a configuration to a file, and returns its path.
func WriteConfig(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "adbuffer.yaml")
	testsupport.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}
