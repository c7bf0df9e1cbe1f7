package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"

	"adbuffer/internal/test/testsupport"
)

// Developers may use macOS, for which no other test compiles. The test only checks types: compilation would take
// minutes of CPU time.
func TestPackagesAreCorrectGoForMacOS(t *testing.T) {
	testsupport.Long(t)
	root, err := os.Getwd()
	testsupport.NoError(t, err)
	root = strings.TrimSuffix(root, "internal/test/archtest")
	config := packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo,
		Dir:  root, Tests: true, BuildFlags: []string{"-pgo=off"},
		Env: append(os.Environ(), "GOOS=darwin", "GOARCH=arm64", "CGO_ENABLED=0"),
		// Only the bodies of adbuffer's own functions count.
		ParseFile: func(fset *token.FileSet, name string, src []byte) (*ast.File, error) {
			f, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
			if f != nil && !strings.HasPrefix(name, root) {
				for _, d := range f.Decls {
					if d, ok := d.(*ast.FuncDecl); ok {
						d.Body = nil
					}
				}
			}
			return f, err
		},
	}
	all, err := packages.Load(&config, "./...")
	testsupport.NoError(t, err)
	testsupport.True(t, len(all) > 50, "%d packages", len(all))
	for _, p := range all {
		if strings.HasSuffix(p.ID, ".test") { // a generated main package
			continue
		}
		for _, e := range p.Errors {
			t.Error(e)
		}
	}
}
