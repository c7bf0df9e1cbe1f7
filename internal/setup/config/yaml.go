package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"

	"go.yaml.in/yaml/v3"
)

const (
	maxFileBytes = 1 << 20
	// maxValues bounds the values of a document after its aliases are expanded. A thousand SSPs
	// with every key are 70,000 values.
	maxValues = 100_000
)

// parseYAML returns the root of the document in data, nil if the document is empty.
// ok is false if data cannot be read at all.
func (r *report) parseYAML(data []byte) (root *yaml.Node, ok bool) {
	if len(data) > maxFileBytes {
		r.add("", nil, fmt.Sprintf("the file must not be larger than %d bytes", maxFileBytes))
		return nil, false
	}
	data = WithVersion11(data)
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0:
		return nil, true
	case err != nil:
		r.syntax(data, err)
		return nil, false
	}
	if err := decoder.Decode(&second); err == nil {
		r.addAt(markOf(&second), "", "", "a file must hold one YAML document, not several")
		return nil, false
	} else if !errors.Is(err, io.EOF) {
		r.syntax(data, err)
		return nil, false
	}
	if countValues(&doc, map[*yaml.Node]int{}) > maxValues {
		r.add("", nil, fmt.Sprintf("aliases expand to more than %d values, or an anchor holds itself", maxValues))
		return nil, false
	}
	return doc.Content[0], true
}

// version12 finds the minor version in a directive %YAML 1.2 at the top of a file.
var version12 = regexp.MustCompile(`^(?:\x{FEFF})?(?:[ \t]*(?:#[^\n]*)?\n|%TAG[^\n]*\n|[ \t]*\r\n)*%YAML[ \t]+1\.(2)(?:\s|$)`)

// WithVersion11 returns data with %YAML 1.1 in place of %YAML 1.2, which the parser refuses although it
// reads what configurations use of YAML 1.2.
func WithVersion11(data []byte) []byte {
	m := version12.FindSubmatchIndex(data)
	if m == nil {
		return data
	}
	data = bytes.Clone(data)
	data[m[2]] = '1'
	return data
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

// countValues returns the number of values at and below node once aliases are expanded, in time linear in
// the size of the document. The result is above maxValues if there are too many values, or if node
// contains itself. sizes holds the results for the nodes counted so far; for a node that is still being
// counted it holds maxValues + 1.
func countValues(node *yaml.Node, sizes map[*yaml.Node]int) int {
	if size, ok := sizes[node]; ok {
		return size
	}
	sizes[node] = maxValues + 1
	size := 1
	if node.Kind == yaml.AliasNode {
		size += countValues(node.Alias, sizes)
	}
	for _, child := range node.Content {
		size += countValues(child, sizes)
		if size > maxValues {
			return size
		}
	}
	sizes[node] = size
	return size
}
