package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	maxFileBytes = 1 << 20
	// maxValues bounds what aliases may expand to; a thousand SSPs with every key
	// written out are 70,000 values.
	maxValues = 100_000
	// maxItems bounds a list before defaults multiply what its elements hold.
	maxItems = 1000
)

// reader turns a YAML document into maps and lists that hold known keys only. It
// reports everything else itself, because viper lower-cases keys and forgets
// duplicates and lines.
type reader struct {
	*report
}

// read returns the document as type t describes it. ok is false if it cannot be
// read at all.
func (r reader) read(data []byte, t reflect.Type) (tree map[string]any, ok bool) {
	if len(data) > maxFileBytes {
		r.addMissing("", fmt.Sprintf("the file must not be larger than %d bytes", maxFileBytes))
		return nil, false
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0:
		return map[string]any{}, true
	case err != nil:
		r.syntax(err)
		return nil, false
	}
	if err := decoder.Decode(&second); err == nil {
		r.addAt(mark{line: second.Line}, "", "", "a file must hold one YAML document, not several")
		return nil, false
	} else if !errors.Is(err, io.EOF) {
		r.syntax(err)
		return nil, false
	}
	size := expansion{sizes: map[*yaml.Node]int{}}
	if values := size.of(&doc); values > maxValues {
		r.addMissing("", fmt.Sprintf("aliases expand to more than %d values, or an anchor holds itself", maxValues))
		return nil, false
	}
	value, _ := r.value(doc.Content[0], t, "")
	tree, ok = value.(map[string]any)
	return tree, ok || !r.bad[""]
}

// syntax reports an error of the YAML parser, whose text may start with a line.
func (r reader) syntax(err error) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	var m mark
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if number, message, ok := strings.Cut(rest, ": "); ok {
			if line, err := strconv.Atoi(number); err == nil {
				m.line, text = line, message
			}
		}
	}
	// An unquoted value that begins with * is an anchor's name for YAML.
	if strings.HasPrefix(text, "unknown anchor ") {
		text = "a value that begins with * needs quotes, or an anchor of that name"
	}
	r.addAt(m, "", "", "not YAML: "+strings.ReplaceAll(text, "\n", " "))
}

// value reads node as type t. ok is false if there is nothing: null is an absent
// key, and a wrong shape is reported.
func (r reader) value(node *yaml.Node, t reflect.Type, path string) (value any, ok bool) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" {
		return nil, false
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	r.marks[path] = mark{line: node.Line}
	switch {
	case isList(t):
		return r.list(node, t, path)
	case t == reflect.TypeFor[RouteSSP]() && node.Kind == yaml.ScalarNode:
		name, ok := r.value(node, reflect.TypeFor[string](), join(path, "name"))
		return map[string]any{"name": name}, ok
	case isSection(t):
		return r.section(node, t, path)
	}
	return r.scalar(node, t, path)
}

func (r reader) scalar(node *yaml.Node, t reflect.Type, path string) (any, bool) {
	if node.Kind != yaml.ScalarNode {
		r.addLater(path, "", "must be a single value, not a "+kindOf(node))
		return nil, false
	}
	inQuotes := node.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0
	r.marks[path] = mark{line: node.Line, text: node.Value, quoted: inQuotes && t.Kind() != reflect.String && !isText(t)}
	var value any
	if err := node.Decode(&value); err != nil {
		r.addLater(path, shownAt(path, node.Value), "not YAML: does not fit its tag "+shown(node.Tag))
		return nil, false
	}
	return value, true
}

// list keeps the place of an element that cannot be read, as nil, so that the
// paths of those behind it stay right.
func (r reader) list(node *yaml.Node, t reflect.Type, path string) (any, bool) {
	if node.Kind != yaml.SequenceNode {
		r.addLater(path, "", "must be a list, not a "+kindOf(node))
		return nil, false
	}
	if len(node.Content) > maxItems {
		r.addLater(path, "", fmt.Sprintf("must not have more than %d elements; it has %d", maxItems, len(node.Content)))
		return nil, false
	}
	list := make([]any, len(node.Content))
	for i, element := range node.Content {
		value, ok := r.value(element, t.Elem(), at(path, i))
		if !ok && !r.bad[at(path, i)] {
			r.addAt(mark{line: element.Line}, at(path, i), "", "must not be empty")
		}
		list[i] = value
	}
	return list, true
}

func (r reader) section(node *yaml.Node, t reflect.Type, path string) (any, bool) {
	if node.Kind != yaml.MappingNode {
		r.addLater(path, "", "must be a mapping of keys to values, not a "+kindOf(node))
		return nil, false
	}
	section := map[string]any{}
	r.merged(node, t, path, section)

	lines := map[string]int{} // of the keys so far, in lower case
	spelt := map[string]string{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		if name.Kind == yaml.AliasNode {
			name = name.Alias
		}
		if name.ShortTag() == "!!merge" {
			continue
		}
		if name.Kind != yaml.ScalarNode {
			r.addAt(mark{line: name.Line}, join(path, "?"), "", "a key must be a word, not a "+kindOf(name))
			continue
		}
		p, here := join(path, shown(name.Value)), mark{line: name.Line}
		lower := strings.ToLower(name.Value)
		if first, ok := lines[lower]; ok {
			rule := fmt.Sprintf("written twice; first on line %d", first)
			if spelt[lower] != name.Value {
				rule = fmt.Sprintf("differs only in case from %s on line %d", shown(spelt[lower]), first)
			}
			r.addAt(here, p, "", rule)
			continue
		}
		lines[lower], spelt[lower] = name.Line, name.Value
		k, ok := findKey(t, name.Value)
		if !ok {
			rule := "unknown key"
			if !r.full() {
				rule = unknownKey(t, path, name.Value)
			}
			r.addAt(here, p, "", rule)
			continue
		}
		if v, ok := r.value(value, k.typ, p); ok {
			section[k.name] = v
		}
	}
	return section, true
}

// merged reads what the merge keys (<<) of node bring; the node's own keys win
// over it, and an earlier mapping over a later one.
func (r reader) merged(node *yaml.Node, t reflect.Type, path string, section map[string]any) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].ShortTag() != "!!merge" {
			continue
		}
		from := node.Content[i+1]
		if from.Kind == yaml.AliasNode {
			from = from.Alias
		}
		sources := []*yaml.Node{from}
		if from.Kind == yaml.SequenceNode {
			sources = from.Content
		}
		for j := len(sources) - 1; j >= 0; j-- {
			source := sources[j]
			if source.Kind == yaml.AliasNode {
				source = source.Alias
			}
			if source.Kind != yaml.MappingNode {
				r.addAt(mark{line: source.Line}, join(path, "<<"), "", "must merge mappings, not a "+kindOf(source))
				continue
			}
			value, _ := r.section(source, t, path)
			for name, v := range value.(map[string]any) {
				section[name] = v
			}
		}
	}
}

func findKey(t reflect.Type, name string) (key, bool) {
	for _, k := range keysOf(t) {
		if k.name == name {
			return k, true
		}
	}
	return key{}, false
}

func kindOf(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "mapping"
	case yaml.SequenceNode:
		return "list"
	default:
		return "single value"
	}
}

// expansion counts the values of a document once its aliases are followed, in
// time linear in the document.
type expansion struct {
	sizes map[*yaml.Node]int // of nodes seen; over maxValues while a node is being counted
}

// of is the number of values at and below node; over maxValues if there are too
// many or node holds itself.
func (e expansion) of(node *yaml.Node) int {
	if size, ok := e.sizes[node]; ok {
		return size
	}
	e.sizes[node] = maxValues + 1
	size := 1
	if node.Kind == yaml.AliasNode {
		size += e.of(node.Alias)
	}
	for _, child := range node.Content {
		size += e.of(child)
		if size > maxValues {
			return size
		}
	}
	e.sizes[node] = size
	return size
}
