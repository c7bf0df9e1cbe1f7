package configfile

import (
	"testing"

	"adbuffer/internal/test/testsupport"
)

func TestAFileThatNeverEndsIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	testsupport.RefusesAnEndlessFile(t, "", func(name string) error {
		_, err := Read(name, maxBytes)
		return err
	})
}
