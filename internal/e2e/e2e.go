// Package e2e runs the real binary against real sockets, for the end-to-end
// tests in the folders below it, one folder for each theme.
//
//   - Process is an adbuffer process.
//   - Client is one raw connection to it; Worker and Traffic make load.
//   - Scrape is one response of /metrics; Refusal is an error response and its promises.
//   - Healthy, Failing, Gated and Scripted start simulated SSPs in the test's process.
//   - Authority makes certificates.
//
// If the tests run with the race detector, so does the binary.
package e2e

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"adbuffer/internal/testsupport"

	"go.uber.org/goleak"
)

// parallel is how many tests of a package run at once. Most tests wait most of the time. go test
// also runs as many packages at once as there are cores.
const parallel = "4"

// Main is TestMain of every package of end-to-end tests. It also fails if goroutines are left when
// all tests have ended, unless known excepts them.
func Main(m *testing.M, known ...goleak.Option) {
	flag.Set("test.parallel", parallel) // the command line, which is parsed later, may choose another
	code := testsupport.Run(m, known...)
	if dir, err := binaryDir(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// binaryDir is a folder of this test process. Other users can run the files in it.
var binaryDir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "adbuffer-e2e-") })

// build makes the binary when the first test needs it. The test packages build into one file, one
// after the other, so only the first build links it. Each package then copies it, because a later
// build may replace the file.
var build = sync.OnceValues(func() (string, error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "adbuffer").Output()
	if err != nil {
		return "", fmt.Errorf("go list -m: %w", err)
	}
	// go test takes a cached result if no file that the test read has changed. WalkDir reads the
	// sources' folders, so a change of the product counts.
	for _, dir := range []string{"cmd", "internal"} {
		if err := filepath.WalkDir(filepath.Join(strings.TrimSpace(string(root)), dir), func(_ string, _ fs.DirEntry, err error) error { return err }); err != nil {
			return "", err
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "adbuffer-e2e", fmt.Sprintf("%.8x", sha256.Sum256(root)))
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	built := filepath.Join(cache, "adbuffer")
	args := []string{"build", "-ldflags", "-X adbuffer/internal/app.Version=v0.0.0-test"}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		built += "-race"
		args = append(args, "-race", "-pgo=off")
	}
	cmd := exec.Command("go", append(args, "-o", built, "./cmd/adbuffer")...)
	cmd.Dir = strings.TrimSpace(string(root))
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	dir, err := binaryDir()
	if err != nil {
		return "", err
	}
	binary, err := os.ReadFile(built)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "adbuffer")
	return file, os.WriteFile(file, binary, 0o755)
})

// Binary returns the path of the binary under test.
func Binary(t testing.TB) string {
	t.Helper()
	file, err := build()
	testsupport.NoError(t, err)
	return file
}
