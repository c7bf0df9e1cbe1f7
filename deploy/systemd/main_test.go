//go:build linux

package systemd

import (
	"os"
	"testing"

	"adbuffer/internal/test/testsupport/boottest"
)

// The tests check the unit files with systemd's own tools. They also boot a systemd in a container
// that installs and runs the service.

func TestMain(m *testing.M) {
	boottest.Inside(inside)
	os.Exit(m.Run())
}
