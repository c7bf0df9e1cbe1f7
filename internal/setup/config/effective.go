package config

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"adbuffer/internal/machine/capacity"
	"adbuffer/internal/request/route"
	"adbuffer/internal/wire/header"
)

// YAML returns the effective configuration, after ssp_defaults are merged into each SSP and variables are
// applied: every key with its value, except optional keys that are absent. Hidden replaces possible secrets.
func (c *Config) YAML() []byte { return c.encode(true) }

// YAMLWithSecrets is like YAML, but hides nothing. It holds the secrets in the configuration itself, not the
// content of the files that it names. Do not log or show it unless an operator asks for it. Parse turns it
// into an equal Config.
func (c *Config) YAMLWithSecrets() []byte { return c.encode(false) }

func (c *Config) encode(hide bool) []byte {
	var buf bytes.Buffer
	encoder := yaml.NewEncoder(&buf)
	encoder.SetIndent(2)
	root := nodeOf(reflect.ValueOf(c).Elem(), hide)
	escapeReferences(root)
	err := encoder.Encode(root)
	if err == nil {
		err = encoder.Close()
	}
	if err != nil {
		panic(fmt.Sprintf("BUG: writing a valid config: %v", err))
	}
	return buf.Bytes()
}

// escapeReferences doubles the dollar signs in front of braces, so that Parse expands no variables.
func escapeReferences(node *yaml.Node) {
	node.Value = dollars.ReplaceAllString(node.Value, "$1$1{")
	for _, below := range node.Content {
		escapeReferences(below)
	}
}

var dollars = regexp.MustCompile(`(\$+)\{`)

// Hash returns 12 hexadecimal digits that are the same for equal configs. The content of files does not
// change them.
func (c *Config) Hash() string {
	sum := sha256.Sum256(c.YAMLWithSecrets())
	return hex.EncodeToString(sum[:6])
}

// keyNode returns the value of key k as a node, or nil if the key is absent. If hide is true, possible secrets
// in the value are hidden: as the key's tag hide says, or in JSON by the names of members.
func keyNode(section reflect.Value, k key, hide bool) *yaml.Node {
	value := section.FieldByIndex(k.index)
	if k.isAbsent(value) {
		return nil
	}
	if value.Kind() == reflect.Pointer {
		if value.IsNil() {
			return nil
		}
		value = value.Elem()
	}
	if v, ok := value.Interface().(JSON); ok {
		return v.node(fieldText(section, "Path"), hide)
	}
	node := nodeOf(value, hide)
	if hider := hiders[k.tag.Get("hide")]; hide && hider != nil {
		name := cmp.Or(fieldText(section, "Name"), fieldText(section, "Path"))
		node.Value = hider(name, node.Value)
		for _, element := range node.Content {
			element.Value = hider(name, element.Value)
		}
	}
	return node
}

// fieldText returns the text of a section's field, or "" if the section has no such field.
func fieldText(section reflect.Value, field string) string {
	f := section.FieldByName(field)
	if !f.IsValid() {
		return ""
	}
	return f.String()
}

// nodeOf returns v as a node. Parse can read it back, unless Hidden has replaced a secret in it.
func nodeOf(v reflect.Value, hide bool) *yaml.Node {
	switch t := v.Type(); {
	case t == reflect.TypeFor[Endpoint]() && v.Interface() == Endpoint{URL: v.FieldByName("URL").String(), Weight: 1}:
		return keyNode(v, keysOf(t)[0], hide)
	case isSection(t):
		node := &yaml.Node{Kind: yaml.MappingNode}
		if shortKey(t) != "" || t == reflect.TypeFor[route.Condition]() || t == reflect.TypeFor[BodyCondition]() || t == reflect.TypeFor[Removal]() || t == reflect.TypeFor[Set]() || t == reflect.TypeFor[header.NameValue]() {
			node.Style = yaml.FlowStyle
		}
		for _, k := range keysOf(t) {
			if value := keyNode(v, k, hide); value != nil {
				node.Content = append(node.Content, scalar("!!str", k.name), value)
			}
		}
		return node
	case isList(t):
		node := &yaml.Node{Kind: yaml.SequenceNode}
		if v.Len() == 0 || !isSection(t.Elem()) || t.Elem() == reflect.TypeFor[Endpoint]() {
			node.Style = yaml.FlowStyle
		}
		for i := range v.Len() {
			node.Content = append(node.Content, nodeOf(v.Index(i), hide))
		}
		return node
	case t == durationType:
		return scalar("!!str", formatDuration(time.Duration(v.Int())))
	case t == jsonValueType:
		return v.Interface().(JSONValue).node()
	case isText(t):
		text, err := v.Interface().(encoding.TextMarshaler).MarshalText()
		if err != nil {
			panic(fmt.Sprintf("BUG: writing a valid %s: %v", t, err))
		}
		return quoted(string(text))
	case t.Kind() == reflect.Int:
		return scalar("", strconv.FormatInt(v.Int(), 10))
	case t.Kind() == reflect.Float64:
		return scalar("", capacity.FormatNumber(v.Float()))
	case t.Kind() == reflect.Bool:
		return scalar("", strconv.FormatBool(v.Bool()))
	case isWord(t):
		return scalar("!!str", v.String())
	default:
		return quoted(v.String())
	}
}

// scalar returns a scalar node. tag is "" for a number or a boolean.
func scalar(tag, text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: text}
}

// quoted returns a scalar node in quotes, for free text that YAML could mistake for a number or a date.
func quoted(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Style: yaml.DoubleQuotedStyle}
}
