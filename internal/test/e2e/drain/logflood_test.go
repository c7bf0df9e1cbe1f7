package drain

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/logs"
)

// handoverSocket returns the address at which the process meets its successor.
func handoverSocket(ab *e2e.Process) *net.UnixAddr {
	ab.T.Helper()
	open := make(map[string]bool)
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", ab.Cmd.Process.Pid))
	testsupport.NoError(ab.T, err)
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil {
			open[to] = true
		}
	}
	sockets, err := os.ReadFile("/proc/net/unix")
	testsupport.NoError(ab.T, err)
	for line := range strings.Lines(string(sockets)) {
		f := strings.Fields(line)
		if name := f[len(f)-1]; strings.HasPrefix(name, "@adbuffer-") && open["socket:["+f[6]+"]"] {
			return &net.UnixAddr{Name: name, Net: "unix"}
		}
	}
	ab.T.Fatal("the process has no hand-over socket")
	return nil
}

// A process that floods the hand-over socket cannot fill the disk with log lines. A few lines with
// the same message are written each second; further lines are counted.
func TestFloodAtTheHandoverSocketWritesFewLines(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, e2e.Single(s.URL()), shared(t, reservePort(t))...)
	at := handoverSocket(ab)
	const refused = "the sockets could not be handed over"
	const connections = 500
	began := time.Now()
	for range connections {
		c, err := net.DialUnix("unix", nil, at)
		testsupport.NoError(t, err)
		c.Close()
	}
	testsupport.Eventually(t, "lines are suppressed", func() bool { return ab.Metric("adbuffer_log_dropped_total", "reason=flood") > 0 })
	testsupport.Eventually(t, "the log has a line about that", func() bool { return strings.Contains(ab.Log.String(), "log lines were suppressed") })
	n, took := strings.Count(ab.Log.String(), refused+`","error`), time.Since(began)
	if most := (int(took/time.Second) + 1) * logs.PerSecond; n > most {
		t.Errorf("%d lines in %v for %d connections, want at most %d", n, took, connections, most)
	}
	ab.Dial().Get("/fillbuffer").WantFill("openx")
}
