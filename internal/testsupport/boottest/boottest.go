// Package boottest runs a test binary inside a container in which systemd boots. Tests of units and of
// packages use it.
package boottest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// insideVariable marks the test binary that runs inside the container.
const insideVariable = "ADBUFFER_TEST_INSIDE"

// insideDone is the last line of the output if every check passed.
const insideDone = "all checks passed"

// bootLimit bounds the container's life; it takes a few seconds on a machine that is idle.
const bootLimit = 5 * time.Minute

// Options are the options of systemd-nspawn after the container's files and --boot.
const Options = "systemd.unit=inside.service systemd.firstboot=off systemd.show_status=no"

// Preset is a preset file with which the first boot starts no other unit of this machine.
const Preset = "disable *\n"

// Unit returns inside.service, the container's only unit. It runs the test binary, /share/test, in the
// folder. Then the container ends with the binary's exit status.
func Unit(folder string) string {
	return `
[Unit]
Requires=basic.target
After=basic.target
SuccessAction=exit
FailureAction=exit-force
JobTimeoutSec=240
JobTimeoutAction=exit-force
[Service]
Type=oneshot
Environment=` + insideVariable + `=1
WorkingDirectory=` + folder + `
ExecStart=/share/test
StandardOutput=file:/share/output
StandardError=inherit
TimeoutStartSec=240
`
}

// Inside runs check and ends the process, if the process is inside the container. TestMain calls it first.
func Inside(check func(*Machine)) {
	if os.Getenv(insideVariable) == "" {
		return
	}
	m := &Machine{}
	defer func() {
		if p := recover(); p != nil {
			fmt.Println(p)
			fmt.Println(m.Try("journalctl --no-pager -o cat"))
			os.Exit(1)
		}
	}()
	check(m)
	fmt.Println(insideDone)
	os.Exit(0)
}

// Boot boots a container with a command that needs root. share is the folder that the container has as
// /share. Boot reports what the test binary wrote there, and an error if a check failed.
func Boot(t *testing.T, share string, args ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		args = append([]string{"sudo", "-n"}, args...) // as scripts/install does
	}
	ctx, cancel := context.WithTimeout(t.Context(), bootLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // takes the container with it
	cmd.WaitDelay = 10 * time.Second
	console, err := cmd.CombinedOutput()
	output, _ := os.ReadFile(share + "/output")
	if err != nil || !strings.Contains(string(output), insideDone) {
		t.Errorf("%v; scripts/install systemd-container\n%s\nthe console:\n%s", err, output, console)
	}
	t.Logf("%s", output)
}
