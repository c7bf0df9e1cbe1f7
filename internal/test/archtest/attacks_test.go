package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

// The tests that ATTACKS.md names exist.
func TestAttacksNamesTestsThatExist(t *testing.T) {
	const root = "../../.."
	text, err := os.ReadFile(filepath.Join(root, "ATTACKS.md"))
	testsupport.NoError(t, err)
	var sources strings.Builder
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		sources.Write(source)
		return err
	})
	testsupport.NoError(t, err)
	names := regexp.MustCompile(`\b(Test|Benchmark)[A-Z]\w+`).FindAllString(string(text), -1)
	testsupport.True(t, len(names) >= 40, "ATTACKS.md names %d tests", len(names))
	for _, name := range names {
		testsupport.True(t, strings.Contains(sources.String(), "\nfunc "+name+"("), "ATTACKS.md names %s, which is no test", name)
	}
}
