// Package openrtb holds tests with bodies of OpenRTB that others have written: the examples of the
// specification, and those in the modules of prebid-server and of the library bsm/openrtb.
package openrtb

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

// sample is a bid request, and a response to it. Either may be nil.
type sample struct {
	Source   string
	Request  json.RawMessage
	Response json.RawMessage
}

// readSamples returns the samples of the specification and of all modules.
func readSamples(t testing.TB) (all []sample) {
	t.Helper()
	text, err := os.ReadFile("testdata/specification.json")
	testsupport.NoError(t, err)
	if err := json.Unmarshal(text, &all); err != nil || len(all) < 8 {
		t.Fatalf("%d samples of the specification, %v", len(all), err)
	}
	for _, m := range modules {
		before := len(all)
		err = filepath.WalkDir(download(t, m.version, m.sum), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".json" {
				return err
			}
			file, err := os.ReadFile(path)
			for _, s := range m.read(filepath.Base(path), file) {
				s.Source = path
				all = append(all, s)
			}
			return err
		})
		if err != nil || len(all)-before < 5 {
			t.Fatalf("%s: %d samples, %v", m.version, len(all)-before, err)
		}
	}
	return all
}

// modules are the modules whose files have bodies. They are not in go.mod, because no code uses them.
var modules = []struct {
	version, sum string
	read         func(name string, file []byte) []sample
}{
	{"github.com/prebid/prebid-server@v0.275.0", "h1:kwWjDQhVdAmxZyx1aZ9WDI/zJEQTSLuO9XH94uftN2w=", ofPrebidServer},
	{"github.com/bsm/openrtb@v2.1.2+incompatible", "h1:dmPEo7nNCEwFh1HijBi6wVShhEUkVGH7vXX7x63Zie8=", ofLibrary},
}

// download returns the folder of a module with this checksum. The module cache keeps it.
func download(t testing.TB, version, sum string) string {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", version)
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "GONOSUMDB=*", "GOWORK=off", "GOFLAGS=")
	out, err := cmd.Output()
	var module struct{ Dir, Sum string }
	if json.Unmarshal(out, &module) != nil || err != nil || module.Sum != sum {
		t.Fatalf("go mod download %s: %v, sum %q, want %q\n%s", version, err, module.Sum, sum, out)
	}
	return module.Dir
}

// ofPrebidServer returns the bodies of a test of prebid-server: what a client sent, and what went to an exchange and
// came back.
func ofPrebidServer(_ string, file []byte) (all []sample) {
	var test struct {
		MockBidRequest json.RawMessage
		HTTPCalls      []struct {
			ExpectedRequest, MockResponse struct{ Body json.RawMessage }
		}
	}
	if json.Unmarshal(file, &test) != nil {
		return nil // another kind of file
	}
	if test.MockBidRequest != nil {
		all = append(all, sample{Request: test.MockBidRequest})
	}
	for _, call := range test.HTTPCalls {
		all = append(all, sample{Request: call.ExpectedRequest.Body, Response: call.MockResponse.Body})
	}
	return all
}

// ofLibrary returns the body in a file of bsm/openrtb.
func ofLibrary(name string, file []byte) []sample {
	switch {
	case strings.HasPrefix(name, "breq"):
		return []sample{{Request: file}}
	case strings.HasPrefix(name, "bres"):
		return []sample{{Response: file}}
	}
	return nil
}

// decoded returns a body as encoding/json reads it, or nil if it is no object.
func decoded(body []byte) map[string]any {
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.UseNumber()
	var object map[string]any
	if d.Decode(&object) != nil {
		return nil
	}
	return object
}

// members returns all values at path.
func members(v any, path []string) []any {
	if len(path) == 0 {
		return []any{v}
	}
	var found []any
	switch v := v.(type) {
	case []any:
		for _, element := range v {
			if path[0] == "*" {
				found = append(found, members(element, path[1:])...)
			}
		}
	case map[string]any:
		if below, there := v[path[0]]; there {
			found = members(below, path[1:])
		}
	}
	return found
}

// without removes the members at path from v.
func without(v any, path []string) {
	name := path[len(path)-1]
	for _, parent := range members(v, path[:len(path)-1]) {
		if object, is := parent.(map[string]any); is {
			delete(object, name)
		}
	}
}

// pathsOf returns the path of every member below v, each once, and a value at it.
func pathsOf(v any, at []string, into map[string]any) {
	switch v := v.(type) {
	case []any:
		for _, element := range v {
			pathsOf(element, append(at, "*"), into)
		}
	case map[string]any:
		for name, below := range v {
			if name == "" || strings.ContainsAny(name, "*.") {
				continue
			}
			path := append(at, name)
			into[strings.Join(path, ".")] = below
			pathsOf(below, path, into)
		}
	}
}
