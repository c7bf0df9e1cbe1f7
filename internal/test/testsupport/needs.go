package testsupport

import (
	"os"
	"os/exec"
	"testing"
)

// Needs returns the path of program, which the Debian package pkg installs. A test without it fails.
// With -short it is skipped instead, so that a machine with Go alone can run all other tests.
func Needs(t testing.TB, pkg, program string) string {
	t.Helper()
	if testing.Short() {
		t.Skipf("needs %s of the Debian package %s; make test runs it", program, pkg)
	}
	path, err := exec.LookPath(program)
	MustTrue(t, err == nil, "%v; scripts/install %s", err, pkg)
	return path
}

// NeedsRoot skips a test that only root can run. What root cannot do is a failure, so that no test stops running unseen.
func NeedsRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount file systems and use port 53")
	}
}

// Long skips a test with -short that takes seconds: it measures, or waits for real time to pass.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long; make test runs it")
	}
}
