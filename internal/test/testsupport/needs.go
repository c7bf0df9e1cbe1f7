package testsupport

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Needs returns the path of program, which the Debian packages pkgs install, separated by spaces. A test without the
// program fails, and so does a test whose packages `make test` does not install: on another machine, the program would be
// missing. With -short the test is skipped instead, so that a machine with Go alone can run all other tests.
func Needs(t testing.TB, pkgs, program string) string {
	t.Helper()
	if testing.Short() {
		t.Skipf("needs %s of the Debian package %s; make test runs it", program, pkgs)
	}
	for pkg := range strings.FieldsSeq(pkgs) {
		MustTrue(t, slices.Contains(installed(t), pkg), "make test does not install %s; see PACKAGES in the Makefile", pkg)
	}
	path, err := exec.LookPath(program)
	MustTrue(t, err == nil, "%v; scripts/install %s", err, pkgs)
	return path
}

// installed returns the Debian packages that `make test` installs.
func installed(t testing.TB) []string {
	t.Helper()
	dir, err := os.Getwd()
	NoError(t, err)
	for ; dir != "/"; dir = filepath.Dir(dir) {
		makefile, err := os.ReadFile(filepath.Join(dir, "Makefile"))
		if err != nil {
			continue
		}
		_, list, _ := strings.Cut(string(makefile), "\nPACKAGES ")
		list, _, _ = strings.Cut(list, "\n")
		return strings.Fields(list)
	}
	t.Fatal("no Makefile above the test's folder")
	return nil
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
