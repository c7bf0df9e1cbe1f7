package manifesttest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// The JSON Schemas of the configuration and of its tests accept valid files, as an editor reads them, and refuse wrong
// types, ranges, words and keys.
func TestTheSchemasAcceptValidFilesAndRefuseWrongTypes(t *testing.T) {
	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join("../..", name))
		testsupport.NoError(t, err)
		return text
	}
	schemaIn := func(name string) (accepts func(text []byte) error) {
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(read("config/" + name)))
		testsupport.NoError(t, err)
		compiler := jsonschema.NewCompiler()
		testsupport.NoError(t, compiler.AddResource(name, document))
		schema, err := compiler.Compile(name)
		testsupport.NoError(t, err)
		return func(text []byte) error {
			asJSON, err := yaml.YAMLToJSON(text)
			testsupport.NoError(t, err)
			value, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
			testsupport.NoError(t, err)
			return schema.Validate(value)
		}
	}
	accepts := schemaIn("adbuffer.schema.json")
	effective, _, status := e2e.Run(t, nil, "check", "--show-secrets", "../../config/reference.yaml")
	testsupport.MustTrue(t, status == 0, "check: exit status %d:\n%s", status, effective)
	valid := map[string][]byte{
		"effective":  []byte(effective),
		"references": []byte(strings.NewReplacer("max_conns: 256", "max_conns: \"${CONNS}\"", "mode: single", "mode: \"${MODE}\"").Replace(effective)),
	}
	for _, name := range []string{"adbuffer", "edge", "minimal", "openrtb", "sidecar"} {
		valid[name] = read("config/" + name + ".yaml")
	}
	for name, text := range valid {
		if err := accepts(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{
		"unknown-key", "unknown-key-in-wrong-place", "list-for-section", "mapping-for-list", "value-for-section", "mapping-for-value",
		"value-for-list", "timeout-without-unit", "timeout-with-unknown-unit", "size-with-unit", "fraction-for-whole-number",
		"number-for-boolean", "number-for-text", "out-of-range", "unknown-word", "ssp-without-name-or-endpoints", "route-unknown-word", "no-ssp",
	} {
		testsupport.True(t, accepts(read("internal/setup/config/testdata/invalid-"+name+".yaml")) != nil, "the schema accepts testdata/invalid-%s.yaml", name)
	}
	accepts = schemaIn("adbuffer.test.schema.json")
	for _, name := range []string{"adbuffer", "edge", "openrtb", "reference", "sidecar"} {
		if err := accepts(read("config/" + name + ".test.yaml")); err != nil {
			t.Errorf("%s.test.yaml: %v", name, err)
		}
	}
	for _, wrong := range []string{"bdy: x", "body: 1", "headers: {A: [b]}", "headers: [A]"} {
		text := "tests: [{name: a, request: {url: /a, " + wrong + "}, expect: {route: r}}]"
		testsupport.True(t, accepts([]byte(text)) != nil, "the schema of tests accepts %s", wrong)
	}
}
