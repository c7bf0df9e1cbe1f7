package config

import (
	"cmp"
	"encoding"
	"reflect"
	"strings"
	"sync"
	"time"

	"adbuffer/internal/wire/handshake"
)

// key is one YAML key of a section: one field of its struct type.
type key struct {
	name   string
	index  []int // for reflect.Value.FieldByIndex
	typ    reflect.Type
	tag    reflect.StructTag
	effect Effect // from the tag reload of the key or of the inlined struct; "" = the section's effect
}

var (
	keyCache      sync.Map // reflect.Type to []key
	documentType  = reflect.TypeFor[document]()
	durationType  = reflect.TypeFor[time.Duration]()
	jsonType      = reflect.TypeFor[JSON]()
	jsonValueType = reflect.TypeFor[JSONValue]()
	fromText      = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// keysOf lists the keys of section type t in the order of its fields, including the keys of inlined
// structs. A map has no keys of its own.
func keysOf(t reflect.Type) []key {
	if t.Kind() == reflect.Map {
		return nil
	}
	if cached, ok := keyCache.Load(t); ok {
		return cached.([]key)
	}
	var keys []key
	for _, field := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if field.Anonymous || name == "-" {
			continue
		}
		effect := cmp.Or(field.Tag.Get("reload"), t.Field(field.Index[0]).Tag.Get("reload"))
		keys = append(keys, key{name, field.Index, field.Type, field.Tag, Effect(effect)})
	}
	keyCache.Store(t, keys)
	return keys
}

// isAbsent reports whether k is a list or a text that may be absent, and value says that it is.
func (k key) isAbsent(value reflect.Value) bool {
	return (isList(k.typ) || k.typ.Kind() == reflect.String) && value.IsZero() && strings.HasSuffix(k.tag.Get("yaml"), ",omitempty")
}

// isSection reports whether t is written as a mapping of known keys.
func isSection(t reflect.Type) bool { return t.Kind() == reflect.Struct && !isText(t) }

// isList reports whether t is written as a sequence.
func isList(t reflect.Type) bool { return t.Kind() == reflect.Slice }

// isText reports whether t is written as a scalar that its method UnmarshalText reads.
func isText(t reflect.Type) bool { return reflect.PointerTo(t).Implements(fromText) }

// isWord reports whether values of t are words from a closed set, as the types of enums.go are.
func isWord(t reflect.Type) bool {
	return t.Kind() == reflect.String && t != reflect.TypeFor[string]() && t != reflect.TypeFor[Address]() && t != jsonValueType && t != jsonType
}

// wordsOf lists the words that k, or each element of k, may be. It returns nil if k is not limited to
// certain words.
func wordsOf(k key) []string {
	if k.name == "groups" {
		return handshake.GroupNames()
	}
	return strings.Fields(k.tag.Get("words"))
}

// shortKey returns the key whose value alone may stand for a whole section of type t, or "".
func shortKey(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[RouteSSP]():
		return "name"
	case reflect.TypeFor[Endpoint]():
		return "url"
	}
	return ""
}

// visitKeys calls visit with every key at and below section type t. In the path of a key, "[]" replaces
// the index of a list. A key without a tag reload has the inherited effect.
func visitKeys(t reflect.Type, path string, inherited Effect, visit func(path string, k key)) {
	for _, k := range keysOf(t) {
		p, below := join(path, k.name), k.typ
		k.effect = cmp.Or(k.effect, inherited)
		visit(p, k)
		switch {
		case isList(below):
			p, below = p+"[]", below.Elem()
		case below.Kind() == reflect.Pointer:
			below = below.Elem()
		}
		if isSection(below) {
			visitKeys(below, p, k.effect, visit)
		}
	}
}
