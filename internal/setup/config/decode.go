package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxItems bounds the elements of a list before defaults are added to each of them.
const maxItems = 1000

// decoder turns YAML nodes and environment variables into maps, lists and values of the settings'
// types. It reports all errors with their path and line. viper cannot do that: it lower-cases keys,
// and loses duplicate keys and line numbers.
//
// Every scalar has an environment variable that replaces the file's value. The variable's name is the
// path in upper case, joined by underscores, such as ADBUFFER_SSPS_OPENX_POOL_MAX_CONNS. In it, a list
// element is called by the element's name, with an underscore in place of every character that is not
// a letter or a digit, or by its index from 0 if it has no name. Variables change list elements of the
// file, but add none. A variable that is empty or names no setting is ignored. A scalar may also refer
// to a variable as ${NAME}; see Env.Expand.
type decoder struct {
	*report
	*variables
	isTests    bool // the document is a Tests, in which ${ has no meaning and each key has a value
	isVariable bool // the node is the text of a variable, in which ${ has no meaning
}

// value decodes node as type t. A node that is nil or null stands for an absent key. ok is false if
// there is no value, because the key is absent or because its error has been reported.
func (d decoder) value(node *yaml.Node, t reflect.Type, path string) (value any, ok bool) {
	node = resolve(node)
	if t == reflect.PointerTo(jsonType) {
		return d.json(node, path)
	}
	if node != nil && node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" {
		node = nil
	}
	if node != nil {
		d.marks[path] = markOf(node)
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case isList(t):
		return d.list(node, t, path)
	case isSection(t) || t.Kind() == reflect.Map:
		if shortKey(t) != "" {
			return d.shortSection(node, t, path)
		}
		return d.section(node, t, path)
	}
	return d.scalar(node, t, path)
}

// shortSection decodes a section that may be written as a scalar, which is then the value of the
// section's short key. A variable may set that scalar too.
func (d decoder) shortSection(node *yaml.Node, t reflect.Type, path string) (any, bool) {
	short := shortKey(t)
	if node != nil && node.Kind == yaml.ScalarNode {
		node = &yaml.Node{Kind: yaml.MappingNode, Line: node.Line, Column: node.Column, Content: []*yaml.Node{scalar("!!str", short), node}}
	}
	value, ok := d.section(node, t, path)
	if name, text := d.variable(path); text != "" && ok {
		d.marks[path] = mark{env: name, text: text}
		d.marks[join(path, short)] = d.marks[path]
		value.(map[string]any)[short] = text
	}
	return value, ok
}

// resolve returns the node that an alias refers to.
func resolve(node *yaml.Node) *yaml.Node {
	if node != nil && node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

func (d decoder) scalar(node *yaml.Node, t reflect.Type, path string) (any, bool) {
	if node != nil && node.Kind != yaml.ScalarNode {
		d.addNearest(path, "", "must be a single value, not a "+kindOf(node))
		return nil, false
	}
	if name, text := d.variable(path); text != "" {
		d.marks[path] = mark{env: name, text: text}
		value, err := parseScalar(text, t)
		return d.checked(value, err, path, text)
	}
	if node == nil {
		return nil, false
	}
	inQuotes := node.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0
	here := markOf(node)
	here.text = node.Value
	if strings.Contains(node.Value, "${") && !d.isTests {
		d.marks[path] = here
		return d.expanded(node, t, path, inQuotes)
	}
	here.quoted = inQuotes && t.Kind() != reflect.String && !isText(t)
	d.marks[path] = here
	if t == jsonValueType {
		value, err := jsonValueOf(node)
		return d.checked(value, err, path, node.Value)
	}
	var value any
	if err := node.Decode(&value); err != nil {
		d.addNearest(path, shownAt(path, node.Value), "not YAML: does not fit its tag "+shown(node.Tag))
		return nil, false
	}
	if !inQuotes && hasLeadingZero(node.Value) && (t.Kind() == reflect.Int || t.Kind() == reflect.Float64) {
		return d.checked(nil, errOctal, path, node.Value)
	}
	value, err := fit(value, t)
	return d.checked(value, err, path, node.Value)
}

// expanded decodes a scalar that contains ${NAME}. Errors show the text before expansion, since the
// variable may hold a secret. A scalar without quotes that expands to nothing is an absent key.
func (d decoder) expanded(node *yaml.Node, t reflect.Type, path string, inQuotes bool) (any, bool) {
	text, err := d.env.Expand(node.Value)
	if err == nil && text == "" && !inQuotes {
		return nil, false
	}
	var value any
	switch {
	case err != nil:
	case t == jsonValueType && inQuotes:
		value = jsonText(text)
	default:
		value, err = parseScalar(text, t)
	}
	return d.checked(value, err, path, node.Value)
}

// checked returns the value of a scalar, or reports err.
func (d decoder) checked(value any, err error, path, text string) (any, bool) {
	if err == nil {
		return value, true
	}
	rule := err.Error()
	if errors.Is(err, errNotInt) && isSize(path) {
		rule += " of bytes, for example 262144"
	}
	d.add(path, text, rule)
	return nil, false
}

// isSize reports whether the value at path is a number of bytes.
func isSize(path string) bool { return strings.HasSuffix(path, "_bytes") }

// list decodes a list. An element without a value becomes nil, so that later elements keep their index.
func (d decoder) list(node *yaml.Node, t reflect.Type, path string) (any, bool) {
	if node == nil {
		return nil, false
	}
	if node.Kind != yaml.SequenceNode {
		d.addNearest(path, "", "must be a list, not a "+kindOf(node))
		return nil, false
	}
	if len(node.Content) > maxItems {
		d.addNearest(path, "", fmt.Sprintf("must not have more than %d elements; it has %d", maxItems, len(node.Content)))
		return nil, false
	}
	list := make([]any, len(node.Content))
	for i, element := range node.Content {
		d.noteName(at(path, i), element, t.Elem())
		value, ok := d.value(element, t.Elem(), at(path, i))
		if !ok && !d.bad[at(path, i)] {
			d.addAt(markOf(element), at(path, i), "", "must not be empty")
		}
		list[i] = value
	}
	return list, true
}

func (d decoder) section(node *yaml.Node, t reflect.Type, path string) (any, bool) {
	if node != nil && node.Kind != yaml.MappingNode {
		d.addNearest(path, "", "must be a mapping of keys to values, not a "+kindOf(node))
		return nil, false
	}
	section := map[string]any{}
	written := map[string]*yaml.Node{} // the keys that this mapping itself has, by their names in lower case
	if node != nil {
		d.merged(node, t, path, section)
		for i := 0; i+1 < len(node.Content); i += 2 {
			d.key(resolve(node.Content[i]), node.Content[i+1], t, path, section, written)
		}
	}
	for _, k := range keysOf(t) {
		if _, ok := section[k.name]; !ok && written[k.name] == nil {
			if v, ok := d.value(nil, k.typ, join(path, k.name)); ok {
				section[k.name] = v
			}
		}
	}
	return section, node != nil || len(section) > 0
}

// key decodes one key of a mapping and its value.
func (d decoder) key(name, value *yaml.Node, t reflect.Type, path string, section map[string]any, written map[string]*yaml.Node) {
	if name.ShortTag() == "!!merge" {
		return
	}
	here := markOf(name)
	if name.Kind != yaml.ScalarNode {
		d.addAt(here, join(path, "?"), "", "a key must be a word, not a "+kindOf(name))
		return
	}
	p, lower := join(path, shown(name.Value)), strings.ToLower(name.Value)
	if first := written[lower]; first != nil {
		rule := fmt.Sprintf("written twice; first on line %d", first.Line)
		if first.Value != name.Value {
			rule = fmt.Sprintf("differs only in case from %s on line %d", shown(first.Value), first.Line)
		}
		d.addAt(here, p, "", rule)
		return
	}
	written[lower] = name
	keys := keysOf(t)
	if t.Kind() == reflect.Map {
		keys = []key{{name: name.Value, typ: t.Elem()}}
	}
	for _, k := range keys {
		if k.name == name.Value {
			if v, ok := d.value(value, k.typ, p); ok {
				section[k.name] = v
			} else if d.isTests && !d.bad[p] {
				d.addAt(here, p, "", "must not be empty")
			}
			return
		}
	}
	root, rule := reflect.TypeFor[Config](), removedKey(p)
	if d.isTests {
		root, rule = testsType, ""
	}
	if rule == "" && !d.full() {
		rule = unknownKey(root, t, path, name.Value)
	}
	d.addAt(here, p, "", rule)
}

// merged decodes the keys that node's merge keys (<<) add to section. The node's own keys are decoded
// later and replace merged keys, unless they have no value (null). Of several merged mappings, the earlier one wins.
func (d decoder) merged(node *yaml.Node, t reflect.Type, path string, section map[string]any) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].ShortTag() != "!!merge" {
			continue
		}
		from := resolve(node.Content[i+1])
		sources := []*yaml.Node{from}
		if from.Kind == yaml.SequenceNode {
			sources = from.Content
		}
		for j := len(sources) - 1; j >= 0; j-- {
			source := resolve(sources[j])
			if source.Kind != yaml.MappingNode {
				d.addAt(markOf(source), join(path, "<<"), "", "must merge mappings, not a "+kindOf(source))
				continue
			}
			value, _ := d.section(source, t, path)
			maps.Copy(section, value.(map[string]any))
		}
	}
}
