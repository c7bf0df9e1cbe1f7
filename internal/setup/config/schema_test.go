package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"

	"github.com/invopop/jsonschema"
)

var update = flag.Bool("update", false, "rewrite config/*.schema.json and testdata/*.txt")

// durationPattern is the grammar of time.ParseDuration without signs, which no key allows.
const durationPattern = `^((([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+|.*\$\{.*)$`

// referencePattern is what a text must have in place of a value of another type: ${NAME}.
const referencePattern = `\$\{`

// schema describes a file of type root that an operator writes. Types and names come from the struct types, ranges and
// defaults from their tags, descriptions from the comments of a file in the config folder.
func schema(t *testing.T, title string, root reflect.Type, documented string) *jsonschema.Schema {
	t.Helper()
	reflector := jsonschema.Reflector{
		Anonymous:                  true,
		ExpandedStruct:             true,
		FieldNameTag:               "yaml",
		RequiredFromJSONSchemaTags: true,
		Mapper: func(t reflect.Type) *jsonschema.Schema {
			if t == durationType {
				return &jsonschema.Schema{Type: "string", Pattern: durationPattern}
			}
			if t == jsonValueType {
				return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "string"}, {Type: "number"}, {Type: "boolean"}}}
			}
			if t == jsonType {
				return new(jsonschema.Schema)
			}
			if isText(t) {
				return &jsonschema.Schema{Type: "string"}
			}
			return nil
		},
	}
	s := reflector.ReflectFromType(root)
	// Editors know draft-07 best, and this schema needs no later one.
	s.Version = "http://json-schema.org/draft-07/schema#"
	s.Title = title
	describe(s, s, root, "", keyDocs(t, documented))
	return s
}

// describe adds the facts that the library does not know to the properties of section type t.
func describe(root, s *jsonschema.Schema, t reflect.Type, path string, docs map[string]string) {
	for _, k := range keysOf(t) {
		property, _ := s.Properties.Get(k.name)
		p, below := join(path, k.name), k.typ
		if property.Ref != "" {
			// Draft-07 ignores keywords beside a reference.
			property.AllOf, property.Ref = []*jsonschema.Schema{{Ref: property.Ref}}, ""
		}
		property.Description = docs[p]
		if below.Kind() == reflect.Pointer {
			below = below.Elem()
		}
		if !isSection(below) && k.typ == below && below.Kind() != reflect.Map {
			property.Default = schemaDefault(k)
		}
		var words []any
		for _, word := range wordsOf(k) {
			words = append(words, word)
		}
		if below.Kind() == reflect.Int || below.Kind() == reflect.Float64 {
			property.Minimum = json.Number(k.tag.Get("min"))
			property.Maximum = json.Number(k.tag.Get("max"))
		}
		if !isList(below) {
			property.Enum = words
			orReference(property)
		} else {
			p, below = p+"[]", below.Elem()
			property.Items.Enum = words
			orReference(property.Items)
		}
		if shortKey(below) != "" {
			property.Items = &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "string"}, property.Items}}
		}
		if below.Kind() == reflect.Map {
			p, below = p+".openx", below.Elem() // an SSP of config/reference.yaml
		}
		if isSection(below) {
			p = strings.TrimPrefix(strings.Replace(p, "ssp_defaults", "ssps[]", 1), ".")
			describe(root, root.Definitions[below.Name()], below, p, docs)
		}
	}
}

// orReference lets a number, a boolean or a word also be a text with a reference to a variable.
func orReference(s *jsonschema.Schema) {
	switch {
	case len(s.Enum) > 0:
		s.AnyOf = []*jsonschema.Schema{{Enum: s.Enum}, {Pattern: referencePattern}}
		s.Enum = nil
	case s.Type == "integer" || s.Type == "number" || s.Type == "boolean":
		s.Extras = map[string]any{"type": []string{s.Type, "string"}}
		s.Type, s.Pattern = "", referencePattern
	}
}

// schemaDefault is nil for a required key, and for a key whose default is another key.
func schemaDefault(k key) any {
	switch {
	case strings.Contains(k.tag.Get("jsonschema"), "required"):
		return nil
	case k.name == "max_idle" || k.name == "weight":
		return nil
	}
	switch v := defaultOf(k).(type) {
	case time.Duration:
		return cmp.Or(k.tag.Get("default"), "0s")
	default:
		return v
	}
}

func TestSchemaFileIsFresh(t *testing.T) {
	wantFresh(t, "adbuffer.schema.json", schema(t, "adbuffer configuration", documentType, "reference.yaml"))
	tests := schema(t, "tests of an adbuffer configuration", testsType, "reference.test.yaml")
	wantFresh(t, "adbuffer.test.schema.json", tests)
	for section, s := range tests.Definitions {
		for p := s.Properties.Oldest(); p != nil; p = p.Next() {
			testsupport.True(t, p.Value.Description != "", "config/reference.test.yaml has no comment above %s of %s", p.Key, section)
		}
	}
}

// wantFresh compares a file of the config folder with s.
func wantFresh(t *testing.T, name string, s *jsonschema.Schema) {
	t.Helper()
	want, err := json.MarshalIndent(s, "", "  ")
	testsupport.NoError(t, err)
	want = append(want, '\n')
	file := filepath.Join(configDir, name)
	if *update {
		testsupport.NoError(t, os.WriteFile(file, want, 0o644))
	}
	got, err := os.ReadFile(file)
	testsupport.NoError(t, err)
	testsupport.True(t, bytes.Equal(got, want), "%s differs from the types and comments; run go generate ./internal/setup/config", file)
}
