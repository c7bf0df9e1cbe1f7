package limits

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"adbuffer/internal/e2e"
)

// launchOnPipe runs adbuffer with a pipe as its standard error. The test reads the pipe only up to
// the addresses of the listeners.
func launchOnPipe(t *testing.T, config string) *e2e.Process {
	t.Helper()
	name := filepath.Join(t.TempDir(), "log")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(name, os.O_RDWR, 0) // so that opening one end does not wait for the other end
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pipe.Close() })
	in := bufio.NewReaderSize(pipe, 256)
	cmd := exec.Command("sh", "-c", `exec "$@" 2>"$0"`, name, e2e.Binary(t), "serve", "--config", e2e.WriteConfig(t, config))
	cmd.Env = append(os.Environ(), e2e.Patient()...)
	return e2e.LaunchCommand(t, cmd, func(ab *e2e.Process) bool {
		text, err := in.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		var line struct{ Msg, Listen, Admin string }
		json.Unmarshal(text, &line)
		ab.TrafficAddr, ab.AdminAddr = line.Listen, line.Admin
		return line.Msg == "starting"
	})
}

// A full log pipe slows no request: lines are dropped and counted.
func TestAFullLogPipeSlowsNoRequest(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := launchOnPipe(t, "log: {access: {enabled: true, sample: 1}}\n"+e2e.Single(s.URL()))
	ab.AwaitReady()
	const clients, each = 8, 600
	path := "/nowhere/" + strings.Repeat("x", 500) // 4800 lines of about 800 bytes: more than pipe and buffer can hold
	ab.Concurrently(clients, func(w *e2e.Worker) error {
		for range each {
			if a, err := w.Exchange("GET", path, ""); err != nil {
				return err
			} else if a.Status != 404 {
				return fmt.Errorf("status %d", a.Status)
			}
		}
		return nil
	})
	ab.AwaitMetricAbove(0, "adbuffer_log_dropped_total")
	ab.Get("/fillbuffer").WantFill("openx")
	ab.WantMetric(clients*each, "adbuffer_requests_total", "route=none", "outcome=no_route")
}
