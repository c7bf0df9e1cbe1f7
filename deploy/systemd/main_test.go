//go:build linux

package systemd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"adbuffer/internal/testsupport"
	"adbuffer/internal/testsupport/boottest"
)

// The tests check the unit files with systemd's own tools. They also boot a systemd in a container
// that installs and runs the service.

func TestMain(m *testing.M) {
	boottest.Inside(inside)
	code := m.Run()
	if dir, err := buildDir(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// patience bounds every wait. It passes only when something is broken.
const patience = testsupport.Patience

var buildDir = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "adbuffer-systemd-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	return dir, err
})

// build makes the binary as it is released, once.
var build = sync.OnceValues(func() (string, error) {
	dir, err := buildDir()
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "adbuffer")
	cmd := exec.Command("go", "build", "-trimpath", "-o", file, "../../cmd/adbuffer")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return file, nil
})

func binary(t *testing.T) string {
	t.Helper()
	file, err := build()
	testsupport.NoError(t, err)
	return file
}
