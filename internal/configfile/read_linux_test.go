package configfile

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/testsupport"
)

// TestAFileThatNeverEndsIsRefusedAtOnce reads the kernel's log, which counts as a regular file. A read
// of it waits for the next message.
func TestAFileThatNeverEndsIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	const name = "/proc/kmsg"
	read := make(chan error, 1)
	go func() {
		_, err := Read(name, maxBytes)
		read <- err
	}()
	select {
	case err := <-read:
		if errors.Is(err, fs.ErrPermission) {
			t.Skip("only root may read the kernel's log")
		}
		testsupport.True(t, err != nil && strings.HasPrefix(err.Error(), name+": must be a file that is read without waiting"), "%v", err)
	case <-time.After(10 * time.Second):
		t.Fatal("it still waits for the kernel's next message")
	}
}
