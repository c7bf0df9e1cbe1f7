//go:build linux

package systemd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"adbuffer/internal/testsupport"
	"adbuffer/internal/testsupport/boottest"
)

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
	for name, text := range map[string]string{"inside.service": boottest.Unit("/share/repository"), "00-inside.preset": boottest.Preset} {
		testsupport.NoError(t, os.WriteFile(filepath.Join(share, name), []byte(text), 0o644))
	}
	args := []string{"systemd-nspawn", "--register=no", "--quiet", "--directory=/", "--volatile=yes", "--private-network", "--tmpfs=/usr/local",
		"--bind=" + share + ":/share", "--bind-ro=" + share + "/inside.service:/etc/systemd/system/inside.service",
		"--bind-ro=" + share + "/00-inside.preset:/etc/systemd/system-preset/00-inside.preset"}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		args = append(args, "--keep-unit") // no systemd runs here that could make a unit for it
	}
	boottest.Boot(t, share, append(append(args, "--boot"), strings.Fields(boottest.Options)...)...)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	info, err := os.Stat(from)
	testsupport.NoError(t, err)
	text, err := os.ReadFile(from)
	testsupport.NoError(t, err)
	testsupport.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
	testsupport.NoError(t, os.WriteFile(to, text, info.Mode().Perm()))
}
