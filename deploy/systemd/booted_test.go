//go:build linux

package systemd

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/testsupport"
)

// insideVariable marks the test binary that runs inside the container.
const insideVariable = "ADBUFFER_TEST_INSIDE"

// bootLimit bounds the container's life; it takes a few seconds on a machine that is idle.
const bootLimit = 5 * time.Minute

// The container's only unit runs this test binary. Then the container ends with the binary's exit
// status.
const insideUnit = `
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
WorkingDirectory=/share/repository
ExecStart=/share/test
StandardOutput=file:/share/output
StandardError=inherit
TimeoutStartSec=240
`

// systemd boots in a container that has its own file system, except for /usr. The README's steps
// install adbuffer there; inside_test.go takes them.
func TestTheUnitsWorkUnderASystemdThatRuns(t *testing.T) {
	testsupport.Needs(t, "systemd-container", "systemd-nspawn")
	share := t.TempDir()
	repository := filepath.Join(share, "repository")
	for from, to := range map[string]string{
		binary(t):                   repository + "/bin/adbuffer", // of `make build`
		os.Args[0]:                  share + "/test",
		"../../config/minimal.yaml": repository + "/config/minimal.yaml",
		"README.md":                 "", "adbuffer.service": "", "adbuffer.socket": "", "adbuffer-admin.socket": "", "secrets.conf": "", "99-adbuffer.conf": "",
	} {
		if to == "" {
			to = repository + "/deploy/systemd/" + from
		}
		copyFile(t, from, to)
	}
	for name, text := range map[string]string{"inside.service": insideUnit, "00-inside.preset": "disable *\n"} {
		if err := os.WriteFile(filepath.Join(share, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"systemd-nspawn", "--register=no", "--quiet", "--directory=/", "--volatile=yes", "--private-network", "--tmpfs=/usr/local",
		"--bind=" + share + ":/share", "--bind-ro=" + share + "/inside.service:/etc/systemd/system/inside.service",
		// The first boot starts no other unit of this machine.
		"--bind-ro=" + share + "/00-inside.preset:/etc/systemd/system-preset/00-inside.preset"}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		args = append(args, "--keep-unit") // no systemd runs here that could make a unit for it
	}
	args = append(args, "--boot", "systemd.unit=inside.service", "systemd.firstboot=off", "systemd.show_status=no")
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

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	info, err := in.Stat()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", to, err))
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}
