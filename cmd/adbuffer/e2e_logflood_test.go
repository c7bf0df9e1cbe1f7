package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"adbuffer/internal/loglimit"
)

// handoverSocket returns the address at which the process meets the next one.
func (ab *adbuffer) handoverSocket() *net.UnixAddr {
	ab.t.Helper()
	open := make(map[string]bool)
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", ab.process.Process.Pid))
	if err != nil {
		ab.t.Fatal(err)
	}
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil {
			open[to] = true
		}
	}
	sockets, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		ab.t.Fatal(err)
	}
	for line := range strings.Lines(string(sockets)) {
		f := strings.Fields(line)
		if name := f[len(f)-1]; strings.HasPrefix(name, "@adbuffer-") && open["socket:["+f[6]+"]"] {
			return &net.UnixAddr{Name: name, Net: "unix"}
		}
	}
	ab.t.Fatal("the process has no hand-over socket")
	return nil
}

// Whoever connects to the hand-over socket cannot fill the disk: of lines with the
// same message a few are written each second, and the others are counted.
func TestFloodAtTheHandoverSocketWritesFewLines(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	ab := start(t, single(s.URL()), shared(t, reservePort(t))...)
	at := ab.handoverSocket()
	const refused = "the sockets could not be handed over"
	const connections = 500
	for range connections {
		c, err := net.DialUnix("unix", nil, at)
		if err != nil {
			t.Fatal(err)
		}
		c.Close() //nolint:errcheck // that is the flood
	}
	eventually(t, "lines are suppressed", func() bool { return ab.metric("adbuffer_log_suppressed_total") > 0 })
	eventually(t, "it is said", func() bool { return strings.Contains(ab.log.String(), "log lines were suppressed") })
	seconds := 0 // each of them has a line that says what was suppressed, but perhaps the last
	for line := range strings.Lines(ab.log.String()) {
		if strings.Contains(line, "log lines were suppressed") {
			seconds++
		}
	}
	if n := strings.Count(ab.log.String(), refused+`","error`); n > (seconds+2)*loglimit.PerSecond {
		t.Errorf("%d lines in %d seconds for %d connections", n, seconds, connections)
	}
	ab.dial().get("/fillbuffer").wantFill("openx")
}
