package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

// The files, packages and functions that ARCHITECTURE.md names exist, and it names all packages.
func TestArchitectureNamesFilesAndFunctionsThatExist(t *testing.T) {
	const root = "../../.."
	page, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	testsupport.NoError(t, err)
	names := regexp.MustCompile("`([a-z0-9]+(?:/[A-Za-z0-9_.-]+)+)`").FindAllStringSubmatch(string(page), -1)
	testsupport.MustTrue(t, len(names) >= 50, "ARCHITECTURE.md names %d files and packages, want at least 50", len(names))
	for _, m := range names {
		_, err := os.Stat(filepath.Join(root, m[1]))
		if err != nil { // the files of a request's way are under internal
			_, err = os.Stat(filepath.Join(root, "internal", m[1]))
		}
		if err != nil {
			t.Errorf("ARCHITECTURE.md names %s, which does not exist", m[1])
		}
	}
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, internal)
		testsupport.True(t, strings.HasPrefix(name, "adbuffer/") || strings.HasPrefix(name, "test/e2e/") || strings.Contains(string(page), "| `"+name+"`"),
			"the table of ARCHITECTURE.md does not name %s", name)
	}
	for _, m := range regexp.MustCompile("`((?:[a-z0-9]+/)+[a-z0-9_]+\\.go)` \\(`([A-Za-z]+)`\\)").FindAllStringSubmatch(string(page), -1) {
		source, err := os.ReadFile(filepath.Join(root, "internal", m[1]))
		if err != nil || !regexp.MustCompile(`\nfunc (\([^)]*\) )?`+m[2]+`\(`).Match(source) {
			t.Errorf("ARCHITECTURE.md names the function %s of %s, which does not exist: %v", m[2], m[1], err)
		}
	}
}
