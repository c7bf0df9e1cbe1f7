package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/openrtb"
)

// JSON is the text of any JSON value, without blanks. In YAML it is a value of YAML's own notation.
type JSON string

var (
	errNotJSON   = errors.New("must be JSON if it begins with { or [")
	errJSONKey   = errors.New("must have only names as keys, each once, and no merge keys")
	errJSONDepth = fmt.Errorf("must not nest more than %d levels deep", openrtb.MaxDepth)
)

// json decodes any value. null is a value; only a missing node is none.
func (d decoder) json(node *yaml.Node, path string) (any, bool) {
	if name, text := d.variable(path); text != "" {
		d.marks[path] = mark{env: name, text: text}
		b, err := d.appendText(nil, text)
		return d.checked(JSON(b), err, path, text)
	}
	if node == nil {
		return nil, false
	}
	d.marks[path] = markOf(node)
	b, err := d.appendJSON(nil, node, 0)
	return d.checked(JSON(b), err, path, node.Value)
}

// appendText appends the value of a variable's text: an object, an array, a number or a boolean if the text is one, or
// else a JSON string.
func (d decoder) appendText(b []byte, text string) ([]byte, error) {
	if !strings.HasPrefix(text, "{") && !strings.HasPrefix(text, "[") {
		value, err := jsonValueOfText(text)
		return append(b, value...), err
	}
	if !json.Valid([]byte(text)) {
		return nil, errNotJSON
	}
	d.isVariable = true
	return d.appendJSON(b, jsonNode(text), 0)
}

// jsonNode returns valid JSON as YAML, with all strings in quotes.
func jsonNode(text string) *yaml.Node {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	root := new(yaml.Node)
	open := []*yaml.Node{root} // the containers around the next token
	for {
		token, err := d.Token()
		if err != nil { // the end
			return root.Content[0]
		}
		var node *yaml.Node
		switch token {
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
			continue
		case json.Delim('{'):
			node = &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
		case json.Delim('['):
			node = &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		case nil:
			node = scalar("!!null", "null")
		default:
			node = scalar("", fmt.Sprint(token)) // a number or boolean
			if s, ok := token.(string); ok {
				node = quoted(s)
			}
		}
		last := open[len(open)-1]
		last.Content = append(last.Content, node)
		if node.Kind != yaml.ScalarNode {
			open = append(open, node)
		}
	}
}

func (d decoder) appendJSON(b []byte, node *yaml.Node, depth int) ([]byte, error) {
	node = resolve(node)
	if depth > openrtb.MaxDepth {
		return nil, errJSONDepth
	}
	if node.Kind == yaml.ScalarNode {
		return d.appendScalar(b, node)
	}
	brackets, step := "[]", 1
	if node.Kind == yaml.MappingNode {
		brackets, step = "{}", 2
	}
	names := map[string]bool{}
	b = append(b, brackets[0])
	for i := 0; i < len(node.Content); i += step {
		if i > 0 {
			b = append(b, ',')
		}
		if step == 2 {
			name := resolve(node.Content[i])
			if name.Kind != yaml.ScalarNode || name.ShortTag() == "!!merge" || names[name.Value] {
				return nil, errJSONKey
			}
			names[name.Value] = true
			b = append(append(b, jsonText(name.Value)...), ':')
		}
		var err error
		if b, err = d.appendJSON(b, node.Content[i+step-1], depth+1); err != nil {
			return nil, err
		}
	}
	return append(b, brackets[1]), nil
}

func (d decoder) appendScalar(b []byte, node *yaml.Node) ([]byte, error) {
	if strings.Contains(node.Value, "${") && !d.isVariable {
		text, err := d.env.Expand(node.Value)
		if node.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
			return append(b, jsonText(text)...), err
		}
		if err != nil {
			return nil, err
		}
		value, err := jsonValueOfText(text)
		return append(b, value...), err
	}
	if node.ShortTag() == "!!null" {
		return append(b, "null"...), nil
	}
	value, err := jsonValueOf(node)
	return append(b, value...), err
}

// depth returns how many levels deep v nests: 0 for text, a number, a boolean or null.
func (v JSON) depth() (deepest int) {
	d := json.NewDecoder(strings.NewReader(string(v)))
	for depth := 0; ; {
		switch token, err := d.Token(); {
		case err != nil:
			return deepest
		case token == json.Delim('{') || token == json.Delim('['):
			depth++
			deepest = max(deepest, depth)
		case token == json.Delim('}') || token == json.Delim(']'):
			depth--
		}
	}
}

// node returns v, the value of the member at path, as YAML. With hide, values whose names may be those of secrets are
// hidden.
func (v JSON) node(path string, hide bool) *yaml.Node {
	if hide && header.NamesSecret(path) {
		return quoted(Hidden)
	}
	root := jsonNode(string(v))
	if hide {
		hideMembers(root)
	}
	return root
}

func hideMembers(node *yaml.Node) {
	for i, below := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 1 && header.NamesSecret(node.Content[i-1].Value) {
			node.Content[i] = quoted(Hidden)
			continue
		}
		hideMembers(below)
	}
}
