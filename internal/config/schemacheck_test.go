package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v3"
)

// schemaAccepts checks YAML text, as an editor does. It knows only the part of JSON Schema that
// adbuffer's schema uses.
func schemaAccepts(root *jsonschema.Schema, text []byte) error {
	var doc any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return err
	}
	return schemaChecker{root.Definitions}.check(root, doc, "")
}

type schemaChecker struct{ defs jsonschema.Definitions }

func (c schemaChecker) check(s *jsonschema.Schema, value any, path string) error {
	if s.Ref != "" {
		def := c.defs[strings.TrimPrefix(s.Ref, "#/$defs/")]
		if def == nil {
			return fmt.Errorf("%s: reference %s does not exist", path, s.Ref)
		}
		return c.check(def, value, path)
	}
	for _, part := range s.AllOf {
		if err := c.check(part, value, path); err != nil {
			return err
		}
	}
	if len(s.AnyOf) > 0 && !slices.ContainsFunc(s.AnyOf, func(part *jsonschema.Schema) bool { return c.check(part, value, path) == nil }) {
		return fmt.Errorf("%s: fits none of the alternatives", path)
	}
	if len(s.Enum) > 0 && !slices.Contains(s.Enum, value) {
		return fmt.Errorf("%s: %v is none of %v", path, value, s.Enum)
	}
	types, _ := s.Extras["type"].([]string)
	if s.Type != "" {
		types = append(types, s.Type)
	}
	is := func(name string) bool { return slices.Contains(types, name) }
	var typed bool
	switch v := value.(type) {
	case map[string]any:
		if typed = is("object"); typed {
			return c.checkObject(s, v, path)
		}
	case []any:
		typed = is("array")
		for i := 0; typed && i < len(v); i++ {
			if err := c.check(s.Items, v[i], at(path, i)); err != nil {
				return err
			}
		}
	case string:
		typed = is("string")
		if s.Pattern != "" && !regexp.MustCompile(s.Pattern).MatchString(v) {
			return fmt.Errorf("%s: %q does not match %s", path, v, s.Pattern)
		}
	case bool:
		typed = is("boolean")
	case int:
		typed = is("integer") || is("number")
		return c.checkNumber(s, typed, float64(v), path)
	case float64:
		typed = is("number")
		return c.checkNumber(s, typed, v, path)
	}
	if !typed && len(types) > 0 {
		return fmt.Errorf("%s: %T is no %s", path, value, types)
	}
	return nil
}

func (c schemaChecker) checkNumber(s *jsonschema.Schema, typed bool, v float64, path string) error {
	if len(s.AnyOf) > 0 || typed && s.Minimum == "" && s.Maximum == "" {
		return nil // a value of a condition
	}
	low, errLow := s.Minimum.Float64()
	high, errHigh := s.Maximum.Float64()
	if !typed || errLow != nil || errHigh != nil || v < low || v > high {
		return fmt.Errorf("%s: %v is no number from %s to %s", path, v, s.Minimum, s.Maximum)
	}
	return nil
}

func (c schemaChecker) checkObject(s *jsonschema.Schema, object map[string]any, path string) error {
	for _, name := range s.Required {
		if _, ok := object[name]; !ok {
			return fmt.Errorf("%s: %s is missing", path, name)
		}
	}
	for name, value := range object {
		property, ok := s.Properties.Get(name)
		if !ok {
			return fmt.Errorf("%s: %s is unknown", path, name)
		}
		if err := c.check(property, value, join(path, name)); err != nil {
			return err
		}
	}
	return nil
}
