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

	"adbuffer/internal/test/testsupport"

	"go.uber.org/goleak"
)

// parallel is how many tests of a package run at once. Most tests wait most of the time. go test
// also runs as many packages at once as there are cores.
const parallel = "4"

// Main is TestMain of every package of end-to-end tests. It also fails if goroutines are left when
// all tests have ended, unless known excepts them. With -short it runs no test: building the binary takes long, and
// many tests need other programs.
func Main(m *testing.M, known ...goleak.Option) {
	flag.Set("test.parallel", parallel) // the command line, which is parsed next, may choose another
	flag.Parse()
	if testing.Short() {
		return
	}
	code := testsupport.Run(m, known...)
	if binary != "" {
		os.Remove(binary)
		os.Remove(filepath.Dir(binary))
	}
	os.Exit(code)
}

var (
	building sync.Once
	binary   string // the path of the binary, once it is built
)

// Binary returns the path of the binary under test, which the first call builds.
func Binary(t testing.TB) string {
	t.Helper()
	building.Do(func() { binary = build(t) })
	testsupport.MustTrue(t, binary != "", "the binary was not built")
	return binary
}

// build makes the binary. The test packages build into one file, one after the other, so only the first
// build links it. Each package then copies it, because a later build may replace the file.
func build(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "adbuffer").Output()
	testsupport.NoError(t, err)
	root := strings.TrimSpace(string(out))
	// go test takes a cached result if no file that the test read has changed. WalkDir reads the
	// sources' folders, so a change of the product counts.
	for _, dir := range []string{"cmd", "internal"} {
		testsupport.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(_ string, _ fs.DirEntry, err error) error { return err }))
	}
	cache, err := os.UserCacheDir()
	testsupport.NoError(t, err)
	cache = filepath.Join(cache, "adbuffer-e2e", fmt.Sprintf("%.8x", sha256.Sum256(out)))
	testsupport.NoError(t, os.MkdirAll(cache, 0o700))
	lock, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	testsupport.NoError(t, err)
	defer lock.Close()
	testsupport.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	built := filepath.Join(cache, "adbuffer")
	args := []string{"build", "-ldflags", "-X adbuffer/internal/app/app.Version=v0.0.0-test"}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		built += "-race"
		args = append(args, "-race", "-pgo=off")
	}
	cmd := exec.Command("go", append(args, "-o", built, "./cmd/adbuffer")...)
	cmd.Dir = root
	out, err = cmd.CombinedOutput()
	testsupport.MustTrue(t, err == nil, "go build: %v\n%s", err, out)
	dir, err := os.MkdirTemp("", "adbuffer-e2e-")
	testsupport.NoError(t, err)
	content, err := os.ReadFile(built)
	testsupport.NoError(t, err)
	file := filepath.Join(dir, "adbuffer")
	testsupport.NoError(t, os.WriteFile(file, content, 0o755))
	return file
}
