package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tests that ATTACKS.md names exist.
func TestAttacksNamesTestsThatExist(t *testing.T) {
	const root = "../.."
	text, err := os.ReadFile(filepath.Join(root, "ATTACKS.md"))
	if err != nil {
		t.Fatal(err)
	}
	var sources strings.Builder
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		sources.Write(source)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\b(Test|Benchmark)[A-Z]\w+`).FindAllString(string(text), -1)
	if len(names) < 40 {
		t.Errorf("ATTACKS.md names %d tests", len(names))
	}
	for _, name := range names {
		if !strings.Contains(sources.String(), "\nfunc "+name+"(") {
			t.Errorf("ATTACKS.md names %s, which is no test", name)
		}
	}
}
