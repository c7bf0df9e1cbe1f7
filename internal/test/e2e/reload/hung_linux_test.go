package reload

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// hang mounts a file system over dir that never responds, as a network file system does whose server is
// gone. After respond, dir is as before.
func hang(t *testing.T, dir string) (respond func()) {
	t.Helper()
	testsupport.NeedsRoot(t)
	fd, err := syscall.Open("/dev/fuse", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	testsupport.NoError(t, err)
	if err := syscall.Mount("hung", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)); err != nil {
		syscall.Close(fd)
		t.Fatal(err)
	}
	mounted := true
	respond = func() {
		if mounted {
			mounted = false
			syscall.Close(fd) // ends the calls that wait
			testsupport.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH))
		}
	}
	t.Cleanup(respond)
	return respond
}

// If a file system does not respond, a reload and a dry run fail after 5 s, and requests go on. Later
// reloads do not wait until the file system responds.
func TestAFileSystemThatDoesNotRespondStopsNoLaterReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := e2e.Single(e2e.Healthy(t).URL())
	file := filepath.Join(dir, "adbuffer.yaml")
	testsupport.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	ab := e2e.Serve(t, file, e2e.Patient()...)
	respond := hang(t, dir)
	const want = "its file system has not responded for 5s"
	for range 2 {
		if status, res := ab.Reload(); status != 422 || !strings.Contains(res.Error, want) {
			t.Errorf("POST /reload responds with %d %+v", status, res)
		}
		document := config + "admin: {token_file: " + filepath.Join(dir, "token") + "}\n"
		if status, body := ab.SendAdmin("POST", "/reload?dry_run=1", document); status != 422 || !strings.Contains(body, want) {
			t.Errorf("a dry run responds with %d %s", status, body)
		}
		ab.Get("/fillbuffer").WantFill("openx")
	}
	// Linux kills no process that waits behind another one for such a directory, so check has its own.
	other := t.TempDir()
	hang(t, other)
	if _, stderr, code := e2e.Run(t, nil, "check", filepath.Join(other, "adbuffer.yaml")); code != 1 || !strings.Contains(stderr, want) {
		t.Errorf("check ends with exit status %d: %s", code, stderr)
	}
	respond()
	ab.AwaitMetric(1, "adbuffer_config_last_reload_successful")
	if status, res := ab.Reload(); status != 200 {
		t.Errorf("POST /reload responds with %d %+v", status, res)
	}
}
