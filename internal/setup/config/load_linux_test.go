package config

import (
	"testing"

	"adbuffer/internal/test/testsupport"
)

// A running adbuffer reads its file again. If the file became a link to the kernel's log, every later
// reload would wait.
func TestAConfigurationThatNeverEndsIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	testsupport.RefusesAnEndlessFile(t, "config: ", func(name string) error {
		_, _, err := Load(name, nil)
		return err
	})
}
