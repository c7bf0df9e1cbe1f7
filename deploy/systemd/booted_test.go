//go:build linux

package systemd

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/test/testsupport/boottest"
)

// systemd boots in a container. The README's steps install adbuffer there; inside_test.go takes them.
func TestTheUnitsWorkUnderASystemdThatRuns(t *testing.T) {
	testsupport.Needs(t, "systemd-container", "systemd-nspawn")
	share := t.TempDir()
	repository := filepath.Join(share, "repository")
	testsupport.NoError(t, errors.Join(
		os.CopyFS(repository+"/config", os.DirFS("../../config")),
		os.CopyFS(repository+"/deploy/systemd", os.DirFS(".")),
	))
	build := exec.Command("go", "build", "-o", repository+"/bin/adbuffer", "../../cmd/adbuffer")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	testsupport.MustTrue(t, err == nil, "go build: %v\n%s", err, out)
	boottest.Boot(t, share, "/share/repository")
}
