// Package archtest checks the architecture: which package may import which, and that documents name
// what exists.
package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

const internal = "adbuffer/internal/"

// floors are the folders of internal from top to bottom; ARCHITECTURE.md shows them with their packages.
// A package may import packages of its own floor and of the floors below, so each floor can be understood
// without the ones above it. Floors of one row do not import each other.
var floors = [][]string{{"app"}, {"test"}, {"operate"}, {"setup"}, {"request"}, {"client", "ssp"}, {"wire"}, {"machine"}}

// exceptions are the imports that are allowed in spite of the floors, as "request/route app/demo".
var exceptions = []string{}

// traffic is a package of the uppermost floor on the path of requests.
const traffic = internal + "request/proxy"

// place returns a package's floor and the number of the floor's row. Commands stand above all floors, in
// row -1. ok is false if the package is on no floor.
func place(pkg string) (floor string, row int, ok bool) {
	if strings.HasPrefix(pkg, "adbuffer/cmd/") {
		return "", -1, true
	}
	floor, name, _ := strings.Cut(strings.TrimPrefix(pkg, internal), "/")
	row = slices.IndexFunc(floors, func(f []string) bool { return slices.Contains(f, floor) })
	return floor, row, row >= 0 && name != ""
}

// restricted are packages that only a few packages may import, of all or of those on the path of requests.
// adbuffer's own code serves and forwards requests. net/http is only for the admin listener and its clients.
// x/net/http2 is only for the names and tables of HTTP/2's codec.
var restricted = []struct {
	imported  string
	onTraffic bool
	users     []string
}{
	{"github.com/spf13/viper", false, []string{"adbuffer/internal/setup/config"}},
	{"github.com/valyala/fasthttp", false, []string{"adbuffer/internal/client/http1"}},
	{"net/http", true, []string{"adbuffer/internal/machine/metrics", "adbuffer/internal/wire/tracing"}}, // the handler of /metrics; the exporter of spans follows no redirect
	{"golang.org/x/net/http2", true, []string{"adbuffer/internal/ssp/http2", "adbuffer/internal/client/http2", "adbuffer/internal/wire/http2codec"}},
}

type goPackage struct {
	ImportPath string
	Imports    []string
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-pgo=off", "-json=ImportPath,Imports", "adbuffer/cmd/...", "adbuffer/internal/...")
	out, err := cmd.Output()
	testsupport.MustTrue(t, err == nil, "go list: %v", err)
	var all []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestImportsBetweenFloorsGoDown(t *testing.T) {
	unused := slices.Clone(exceptions)
	for _, p := range listPackages(t) {
		floor, row, ok := place(p.ImportPath)
		if !ok {
			t.Errorf("%s is on no floor: packages are in folders of %v", p.ImportPath, floors)
			continue
		}
		for _, imported := range p.Imports {
			below, belowRow, ok := place(imported)
			if !strings.HasPrefix(imported, "adbuffer/") || ok && (belowRow > row || below == floor) {
				continue
			}
			name := strings.TrimPrefix(p.ImportPath, internal) + " " + strings.TrimPrefix(imported, internal)
			testsupport.True(t, slices.Contains(exceptions, name), "%s imports %s, which is not on a floor below: a reader of the lower package would have to know the upper one", p.ImportPath, imported)
			unused = slices.DeleteFunc(unused, func(e string) bool { return e == name })
		}
	}
	testsupport.True(t, len(unused) == 0, "these exceptions are not needed: %q", unused)
}

// Each folder of internal is a floor, also if its packages are a module of their own.
func TestFoldersOfInternalAreTheFloors(t *testing.T) {
	folders, err := os.ReadDir("../..")
	testsupport.NoError(t, err)
	for _, f := range folders {
		_, _, ok := place(internal + f.Name() + "/x")
		testsupport.True(t, ok, "internal/%s is not among the floors %v", f.Name(), floors)
	}
	testsupport.Equal(t, len(folders), len(slices.Concat(floors...)), "internal has %d folders")
}

func TestOnlyAFewPackagesImportRestrictedOnes(t *testing.T) {
	_, first, _ := place(traffic)
	for _, p := range listPackages(t) {
		_, row, _ := place(p.ImportPath)
		for _, r := range restricted {
			if r.onTraffic && row < first || slices.Contains(r.users, p.ImportPath) {
				continue
			}
			testsupport.True(t, !slices.Contains(p.Imports, r.imported), "%s imports %s; only %v may", p.ImportPath, r.imported, r.users)
		}
	}
}
