package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport/boottest"

	"adbuffer/internal/test/testsupport"
)

func TestMain(m *testing.M) {
	boottest.Inside(inside)
	os.Exit(m.Run())
}

// The packages are installed, upgraded under requests, removed and purged under a systemd that runs;
// inside_test.go does it. ADBUFFER_RELEASE is a folder with a release to test, in place of packages that
// the test makes. Then the .rpm is tested too.
func TestThePackagesWorkUnderASystemdThatRuns(t *testing.T) {
	share := t.TempDir()
	for _, version := range []string{"0.1.0", "0.1.1"} {
		if dist := os.Getenv("ADBUFFER_RELEASE"); dist == "" || version != "0.1.0" {
			copyFiles(t, packagesOf(t, version), share)
		} else {
			copyFiles(t, dist, share)
		}
	}
	if os.Getenv("ADBUFFER_RELEASE") == "" {
		for _, f := range glob(t, share+"/*.rpm") {
			testsupport.NoError(t, os.Remove(f))
		}
	}
	boottest.Boot(t, share, "/share")
}

// packagesOf makes the packages of a version for this machine, and returns their folder. Their binary is that of the
// other tests, which is already compiled.
func packagesOf(t *testing.T, version string) string {
	t.Helper()
	r := &release{root: "../..", out: t.TempDir(), version: version, commit: commit, time: time.Unix(1_750_000_000, 0), goflags: os.Getenv("GOFLAGS")}
	_, err := r.command(t.Context(), nil, "go", "build", "-ldflags", r.names(), "-o", r.binary(runtime.GOARCH), "./cmd/adbuffer")
	testsupport.NoError(t, err)
	testsupport.NoError(t, errors.Join(r.findGo(t.Context()), r.writeLicenses(runtime.GOARCH)))
	stage := t.TempDir()
	manual, err := r.manual(t.Context(), stage)
	testsupport.NoError(t, err)
	pages := glob(t, manual+"/man/adbuffer*.1.gz")
	testsupport.True(t, len(pages) >= 10, "man pages %v, want one for each command", pages)
	testsupport.NoError(t, r.packages(stage, runtime.GOARCH, manual))
	return r.out
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	testsupport.NoError(t, err)
	return found
}

// copyFiles copies the packages for this machine, and the binary.
func copyFiles(t *testing.T, from, to string) {
	t.Helper()
	rpm := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	for _, pattern := range []string{"/*_" + runtime.GOARCH, "/*_" + runtime.GOARCH + ".deb", "/*." + rpm + ".rpm"} {
		for _, file := range glob(t, from+pattern) {
			copyFile(t, file, filepath.Join(to, filepath.Base(file)))
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	testsupport.NoError(t, err)
	testsupport.NoError(t, os.WriteFile(to, content, 0o755))
}
