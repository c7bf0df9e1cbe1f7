package testsupport

import (
	"archive/zip"
	"io/fs"
	"testing"
)

// ReadZip returns the contents of the files in a ZIP file, by name.
func ReadZip(t testing.TB, path string) map[string]string {
	t.Helper()
	z, err := zip.OpenReader(path)
	NoError(t, err)
	defer z.Close()
	files := make(map[string]string)
	for _, f := range z.File {
		b, err := fs.ReadFile(z, f.Name)
		NoError(t, err)
		files[f.Name] = string(b)
	}
	return files
}
