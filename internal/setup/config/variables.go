package config

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"adbuffer/internal/wire/header"
)

// Env holds variables by their names. A nil Env has none.
type Env map[string]string

// OSEnv returns the variables of this process.
func OSEnv() Env {
	env := Env{}
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	return env
}

// reference matches ${NAME} and ${NAME:-default}, with all dollar signs in front. It also matches a
// reference that lacks its closing brace.
var reference = regexp.MustCompile(`\$+\{([^}]*)(\}?)`)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Expand replaces ${NAME} by the value of the variable, and ${NAME:-default} by the default if the
// variable is empty or not set. $${ stands for the characters ${. All other dollar signs stay. The error
// says which variable is not set, or which form a reference must have. It never shows a value.
func (e Env) Expand(text string) (string, error) {
	var failed error
	expanded := reference.ReplaceAllStringFunc(text, func(match string) string {
		dollars := strings.Index(match, "{")
		rest := match[dollars:]
		escaped := strings.Repeat("$", dollars/2)
		if dollars%2 == 0 {
			return escaped + rest
		}
		value, err := e.lookUp(strings.TrimPrefix(rest, "{"))
		if failed == nil {
			failed = err
		}
		return escaped + value
	})
	if failed != nil {
		return "", failed
	}
	return expanded, nil
}

// minHidden is the length below which the value of a variable is too short to be a secret.
const minHidden = 6

// Referenced returns the values of the variables to which a document refers, longest first, so that the
// caller can hide them from a client that chose the document. It leaves out values that are too short to
// be secrets. Like Parse, it looks for references in decoded values, since YAML can write a dollar sign
// as "\x24".
func (e Env) Referenced(document []byte) (values []string) {
	var look func(node *yaml.Node)
	look = func(node *yaml.Node) {
		for _, match := range reference.FindAllStringSubmatch(node.Value, -1) {
			name, _, _ := strings.Cut(match[1], ":-")
			if value := e[name]; len(value) >= minHidden {
				values = append(values, value, strings.ToLower(value)) // hosts become lower case
			}
		}
		for _, child := range node.Content {
			look(child)
		}
	}
	if root, ok := newReport().parseYAML(document); ok && root != nil {
		look(root)
	}
	slices.SortStableFunc(values, func(a, b string) int { return len(b) - len(a) })
	return values
}

// lookUp returns the value of a reference. text is what follows ${, with the closing brace.
func (e Env) lookUp(text string) (string, error) {
	text, closed := strings.CutSuffix(text, "}")
	name, byDefault, hasDefault := strings.Cut(text, ":-")
	value, set := e[name]
	switch {
	case !closed || !variableName.MatchString(name):
		return "", fmt.Errorf("must refer to variables as ${NAME} or ${NAME:-default}; write $${ for the characters ${")
	case hasDefault && value == "":
		return byDefault, nil
	case !set:
		return "", fmt.Errorf("the variable %s is not set; set it, give a default with ${%s:-default}, or write $${ for the characters ${", shown(name), shown(name))
	}
	return value, nil
}

const variablePrefix = "ADBUFFER"

// variables looks up the environment variables that replace values of settings.
type variables struct {
	env      Env
	used     bool              // env has a name with variablePrefix; otherwise names need not be made
	settings map[string]string // the paths that were looked up, by the names of their variables
	elements map[string]string // the names of list elements, in the form of variables, by path
	byIndex  map[string]string // the valid names of variables, by the names that have the element's index in place of its name
}

func newVariables(env Env) *variables {
	v := &variables{env: env, settings: map[string]string{}, elements: map[string]string{}, byIndex: map[string]string{}}
	for name := range env {
		v.used = v.used || strings.HasPrefix(name, variablePrefix)
	}
	return v
}

// nameOf returns the name of the variable for the value at path: the path in upper case, joined by
// underscores, in which the names in elements replace the indices of list elements.
func (v *variables) nameOf(path string, elements map[string]string) string {
	if path == "" {
		return variablePrefix
	}
	above := parent(path)
	last := elements[path]
	if last == "" {
		last = strings.ToUpper(strings.Trim(path[len(above):], ".[]"))
	}
	return v.nameOf(above, elements) + "_" + last
}

// variable returns the name and the text of the variable for the scalar at path. The text is "" if the
// variable is not set. A variable that would set two values is an error.
func (d decoder) variable(path string) (name, text string) {
	if !d.used {
		return "", ""
	}
	name = d.nameOf(path, d.elements)
	text = d.env[name]
	if other := d.settings[name]; other != "" && other != path && text != "" {
		d.addAt(mark{env: name}, path, "", "sets "+other+" too; give one of them another name")
	}
	d.settings[name] = path
	if indexed := d.nameOf(path, nil); indexed != name {
		d.byIndex[indexed] = name
	}
	return name, text
}

var noWord = regexp.MustCompile(`[^A-Z0-9]`)

// noteName remembers the name of the list element at path, if names are unique among elements of type t.
func (d decoder) noteName(path string, element *yaml.Node, t reflect.Type) {
	switch t {
	case reflect.TypeFor[SSP](), reflect.TypeFor[Route](), reflect.TypeFor[RouteSSP](), reflect.TypeFor[header.NameValue]():
		written, _ := d.env.Expand(nameIn(element)) // the error is reported when the name is decoded
		d.elements[path] = noWord.ReplaceAllString(strings.ToUpper(written), "_")
	}
}

// nameIn returns the name of a list element, which may come from a mapping that it merges, or "".
func nameIn(node *yaml.Node) (name string) {
	node = resolve(node)
	switch node.Kind {
	case yaml.ScalarNode:
		return node.Value
	case yaml.SequenceNode: // the mappings of a merge key
		for _, source := range slices.Backward(node.Content) {
			name = nameIn(source)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			switch key := node.Content[i]; {
			case key.Value == "name":
				return nameIn(node.Content[i+1])
			case key.ShortTag() == "!!merge":
				name = nameIn(node.Content[i+1])
			}
		}
	}
	return name
}

// ofKubernetes matches the variables that Kubernetes sets for a service, for example the service
// adbuffer-admin.
var ofKubernetes = regexp.MustCompile(`_SERVICE_(HOST|PORT)|_PORT(_[0-9]+_(TCP|UDP|SCTP))?(_PROTO|_PORT|_ADDR)?$`)

// unknown warns of variables whose names begin with the name of a section, but do not name a setting. They
// are not errors, since a variable may also be meant for a list element that this file lacks.
func (v *variables) unknown() (list []Warning) {
	if !v.used {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(v.env)) {
		if v.settings[name] != "" || v.env[name] == "" || !v.isOfSection(name) || ofKubernetes.MatchString(name) {
			continue
		}
		text := "this variable names no setting of this configuration, and is ignored"
		if byName := v.byIndex[name]; byName != "" {
			text += "; write the element's name in place of its index: " + byName
		} else if best := closest(name, maps.Keys(v.settings)); best != "" && editDistance(name, best) <= 3 { // most names share long parts
			text += "; did you mean " + best + "?"
		}
		list = append(list, Warning{name, text})
	}
	return list
}

func (v *variables) isOfSection(name string) bool {
	return slices.ContainsFunc(keysOf(documentType), func(k key) bool { return strings.HasPrefix(name, v.nameOf(k.name, nil)+"_") })
}
