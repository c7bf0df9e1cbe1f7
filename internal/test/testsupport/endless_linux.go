package testsupport

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"
)

// RefusesAnEndlessFile checks that read refuses the kernel's log at once. It counts as a regular file, and
// a read of it waits for the next message. The error must begin with before and the file's name.
func RefusesAnEndlessFile(t *testing.T, before string, read func(name string) error) {
	t.Helper()
	const name = "/proc/kmsg"
	ended := make(chan error, 1)
	go func() { ended <- read(name) }()
	select {
	case err := <-ended:
		if errors.Is(err, fs.ErrPermission) {
			t.Skip("only root may read the kernel's log")
		}
		True(t, err != nil && strings.HasPrefix(err.Error(), before+name+": must be a file that is read without waiting"), "%v", err)
	case <-time.After(10 * time.Second):
		t.Fatal("it still waits for the kernel's next message")
	}
}
