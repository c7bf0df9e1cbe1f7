package config

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"
)

const configDir = "../../../config"

// keyDocs returns the comment above each key of a file in the config folder by path, with
// "[]" for the index of a list. The first element that has a key documents it.
func keyDocs(t *testing.T, name string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(configDir, name))
	testsupport.NoError(t, err)
	var doc yaml.Node
	testsupport.NoError(t, yaml.Unmarshal(data, &doc))
	docs := map[string]string{}
	collectDocs(doc.Content[0], "", strings.Split(string(data), "\n"), docs)
	return docs
}

func collectDocs(node *yaml.Node, path string, lines []string, docs map[string]string) {
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(node.Content); i += 2 {
			name, value := node.Content[i], node.Content[i+1]
			p := join(path, name.Value)
			if _, ok := docs[p]; !ok {
				docs[p] = commentAbove(lines, name.Line)
			}
			collectDocs(value, p, lines, docs)
		}
	case yaml.SequenceNode:
		for _, element := range node.Content {
			collectDocs(element, path+"[]", lines, docs)
		}
	}
}

// commentAbove joins the comment lines that end right above line (from 1).
func commentAbove(lines []string, line int) string {
	var words []string
	for i := line - 2; i >= 0; i-- {
		text, ok := strings.CutPrefix(strings.TrimSpace(lines[i]), "#")
		if !ok {
			break
		}
		words = append([]string{strings.TrimSpace(text)}, words...)
	}
	return strings.Join(words, " ")
}

// shipped returns the configurations of the config folder. The working directory has the certificate that
// edge.yaml names.
func shipped(t *testing.T) []string {
	t.Helper()
	dir, err := filepath.Abs(configDir)
	testsupport.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	testsupport.MustTrue(t, err == nil && len(files) >= 2, "found %v (%v), want reference.yaml and minimal.yaml at least", files, err)
	files = slices.DeleteFunc(files, func(file string) bool { return strings.HasSuffix(file, ".test.yaml") })
	t.Chdir(t.TempDir())
	writeCert(t, ".", "cert")
	return files
}

func TestEveryFileInTheConfigFolderLoads(t *testing.T) {
	for _, file := range shipped(t) {
		data, err := os.ReadFile(file)
		testsupport.NoError(t, err)
		_, found, err := Parse(data, nil)
		if err != nil {
			t.Errorf("%s:\n%v", file, err)
		}
		for _, w := range found { // other warnings depend on the machine
			testsupport.True(t, !strings.HasPrefix(w.Path, "ssps[") && !strings.HasPrefix(w.Path, "routes["), "%s: %v", file, w)
		}
		first, _, _ := bytes.Cut(data, []byte("\n"))
		testsupport.True(t, string(first) == "# yaml-language-server: $schema=adbuffer.schema.json", "%s begins with %q, not with the editors' line that names the schema", file, first)
	}
}

func TestTheDocumentedFileHasEveryKeyAndItsRealDefault(t *testing.T) {
	docs := keyDocs(t, "reference.yaml")
	visitKeys(reflect.TypeFor[document](), "", "", func(path string, k key) {
		if strings.HasPrefix(path, "ssp_defaults.") {
			return // the keys of an SSP, documented there
		}
		doc := docs[path]
		testsupport.True(t, doc != "", "config/reference.yaml has no comment above %s", path)
		if isSection(k.typ) {
			return
		}
		if want := statedDefault(path, k); !strings.HasSuffix(doc, " "+want) && doc != want {
			t.Errorf("the comment of %s ends in\n  ...%s\nwant\n  %s", path, doc[max(0, len(doc)-50):], want)
		}
	})
}

// The words with which comments of config/reference.yaml state the effect of a change.
var statedEffects = map[string]Effect{"needs a restart": Restart, "takes a new pool": NewPool, "replaces open connections": NewConnections}

// A comment states the effect of a change unless it applies in place. The comment of a section
// applies to all its keys.
func TestTheDocumentedFileSaysWhichChangesAreNotInPlace(t *testing.T) {
	docs := keyDocs(t, "reference.yaml")
	stated := func(path string) Effect {
		for p := path; p != ""; p = p[:max(0, strings.LastIndexByte(p, '.'))] {
			for words, effect := range statedEffects {
				if strings.Contains(docs[p], words) {
					return effect
				}
			}
		}
		return InPlace
	}
	visitKeys(reflect.TypeFor[Config](), "", "", func(path string, k key) {
		list := strings.Contains(strings.TrimPrefix(path, "ssps[]"), "[]") // a list changes as a whole
		want := stated(path)
		testsupport.True(t, isSection(k.typ) || list || path == "ssps" || k.effect == want, "the comment says that a change of %s is %q, and it is %q", path, want, k.effect)
	})
}

// statedDefault is how the comment of a key ends.
func statedDefault(path string, k key) string {
	switch {
	case strings.Contains(k.tag.Get("jsonschema"), "required"):
		return "Required."
	case path == "ssps[].pool.max_idle":
		return "Default max_conns."
	case path == "ssps[].pool.max_http2_conns":
		return "Default 4, or max_conns if that is less."
	case path == "routes[].ssps[].weight":
		return "Default 1 for split, 0 for the other modes."
	case path == "routes[].match.query[].value":
		return "Default: any value, or no value."
	case strings.HasSuffix(path, ".tcf.allowed"):
		return "Default true."
	case path == "routes[].match.header[].value":
		return "Default: any value."
	}
	text := k.tag.Get("default")
	switch {
	case k.typ == reflect.PointerTo(jsonType):
		return "Default: not set."
	case k.typ.Kind() == reflect.Pointer:
		return "Default: not checked."
	case isList(k.typ):
		var elements []string
		for _, element := range strings.Fields(text) {
			elements = append(elements, `"`+element+`"`)
		}
		text = "[" + strings.Join(elements, ", ") + "]"
	case k.typ == durationType && text == "":
		text = "0s"
	case k.typ == durationType || isWord(k.typ):
	case k.typ.Kind() == reflect.Bool && text == "":
		text = "false"
	case k.typ.Kind() == reflect.String || isText(k.typ):
		text = `"` + text + `"`
	case text == "":
		text = "0"
	}
	return "Default " + text + "."
}

// Values in the documented file are the defaults. The exceptions are examples: names, endpoints,
// headers and routes.
func TestValuesInTheDocumentedFileAreTheDefaults(t *testing.T) {
	documented := mustLoad(t, filepath.Join(configDir, "reference.yaml"))
	bare := mustParse(t, `
ssps: [{name: openx, endpoints: ["http://127.0.0.1:9000/bid"]}]
routes: [{name: default, match: {path: /fillbuffer}, ssps: [openx]}]
`)
	ignore := cmp.Options{cmpopts.IgnoreFields(Settings{}, "Headers"), compareUnexported}
	testsupport.Equal(t, cmp.Diff(bare.SSPs[0].Settings, documented.SSPs[0].Settings, ignore), "", "ssps[0] of config/reference.yaml differs from the defaults (-default +file):\n%s")
	documented.SSPs, documented.Routes = bare.SSPs, bare.Routes
	testsupport.Equal(t, cmp.Diff(bare, documented, compareUnexported), "", "config/reference.yaml differs from the defaults (-default +file):\n%s")
}
