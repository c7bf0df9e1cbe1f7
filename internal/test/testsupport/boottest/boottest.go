// Package boottest runs a test binary inside a container in which systemd boots. Tests of units and of
// packages use it.
package boottest

import (
	"adbuffer/internal/test/testsupport"
	"context"
	"errors"
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

// container makes a copy of this machine's file system that goes with its memory, and boots systemd there.
// Only the unit that runs the test binary starts. Then the container ends with the binary's exit status.
const container = `set -eu
mount -t tmpfs tmpfs "$1"
mkdir "$1/changes" "$1/work" "$1/root"
mount -t overlay overlay -o lowerdir=/,upperdir="$1/changes",workdir="$1/work" "$1/root"
mkdir -p "$1/root/etc/systemd/system-preset"
echo 'disable *' >"$1/root/etc/systemd/system-preset/00-inside.preset"
cat >"$1/root/etc/systemd/system/inside.service" <<END
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
WorkingDirectory=$3
ExecStart=/share/test
StandardOutput=file:/share/output
StandardError=inherit
TimeoutStartSec=240
END
[ -e /run/systemd/system ] || keep=--keep-unit # no systemd runs here that could make a unit for it
exec systemd-nspawn --register=no --quiet ${keep-} --directory="$1/root" --private-network --bind="$2:/share" \
	--boot systemd.unit=inside.service systemd.firstboot=off systemd.show_status=no
`

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

// Boot boots the container and runs the test binary there, in folder. The container has the folder share as
// /share. Boot needs root. It reports what the test binary wrote, and an error if a check failed.
func Boot(t *testing.T, share, folder string) {
	t.Helper()
	testsupport.NoError(t, os.Chmod(share, 0o755))
	binary, err := os.ReadFile(os.Args[0])
	testsupport.NoError(t, errors.Join(err, os.WriteFile(share+"/test", binary, 0o755)))
	args := []string{"unshare", "--mount", "sh", "-c", container, "boot", t.TempDir(), share, folder}
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
