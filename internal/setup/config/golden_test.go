package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"

	"github.com/google/go-cmp/cmp"
)

// Each testdata/invalid-*.yaml has one error, whose exact text is in the .txt beside it.
func TestEveryInvalidFileIsRefusedWithItsExactError(t *testing.T) {
	files, err := filepath.Glob("testdata/invalid-*.yaml")
	testsupport.MustTrue(t, err == nil && len(files) != 0, "no files: %v", err)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			cfg, _, err := Load(file, nil)
			var errs Errors
			testsupport.MustTrue(t, errors.As(err, &errs) && len(errs) != 0 && cfg == nil, "got config %v and error %v, want Errors", cfg, err)
			golden := strings.TrimSuffix(file, ".yaml") + ".txt"
			got := err.Error() + "\n"
			if *update {
				testsupport.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			testsupport.NoError(t, err)
			testsupport.Equal(t, cmp.Diff(string(want), got), "", "-want +got:\n%s")
		})
	}
}
