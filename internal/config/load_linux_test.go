package config

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/testsupport"
)

// A running adbuffer reads its file again. If the file became a link to the kernel's log, every later
// reload would wait.
func TestAConfigurationThatNeverEndsIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	const path = "/proc/kmsg"
	loaded := make(chan error, 1)
	go func() {
		_, _, err := Load(path, nil)
		loaded <- err
	}()
	select {
	case err := <-loaded:
		if errors.Is(err, fs.ErrPermission) {
			t.Skip("only root may read the kernel's log")
		}
		testsupport.True(t, err != nil && strings.HasPrefix(err.Error(), "config: "+path+": must be a file that is read without waiting"), "%v", err)
	case <-time.After(10 * time.Second):
		t.Fatal("it still waits for the kernel's next message")
	}
}
