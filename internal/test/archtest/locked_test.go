package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

// A method whose name ends in Locked keeps the mutex locked, from its call to its return.
func TestLockedMethodsKeepTheLock(t *testing.T) {
	methods := 0
	files := token.NewFileSet()
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil || !strings.HasSuffix(f.Name.Name, "Locked") {
				continue
			}
			methods++
			for _, at := range unlocks(f.Body) {
				t.Errorf("%s: %s locks or unlocks a mutex", files.Position(at), f.Name.Name)
			}
		}
		return nil
	})
	testsupport.NoError(t, err)
	testsupport.True(t, methods >= 50, "%d methods are named Locked, want at least 50", methods)
}

// unlocks returns the calls of Lock and Unlock in a body, without those of function literals, which
// run at another time.
func unlocks(body ast.Node) (at []token.Pos) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && (s.Sel.Name == "Lock" || s.Sel.Name == "Unlock") {
				at = append(at, n.Pos())
			}
		}
		return true
	})
	return at
}
