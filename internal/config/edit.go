package config

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

var errNoSSPs = errors.New("there is no list ssps")

// SetPool returns the text of a configuration in which a key of an SSP's pool has this value. All other
// text stays as it is, comments too. The error says what about the text cannot be edited. SetPool
// checks no rule; see Parse.
func SetPool(text []byte, ssp, key string, value int) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	if len(doc.Content) == 0 {
		return nil, errNoSSPs
	}
	_, list := pairOf(doc.Content[0], "ssps")
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil, errNoSSPs
	}
	for _, element := range list.Content {
		if element.Kind != yaml.MappingNode || nameIn(element) != ssp {
			continue
		}
		edit, err := poolEdit(text, element, key, strconv.Itoa(value))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w; set pool.%s of %s to %d by hand", element.Line, err, key, ssp, value)
		}
		return edit.apply(text), nil
	}
	return nil, fmt.Errorf("the list ssps has no %s that is written there", ssp)
}

// pairOf returns a key of a mapping and its value, nil if the mapping has no such key.
func pairOf(mapping *yaml.Node, name string) (key, value *yaml.Node) {
	for i := 0; mapping.Kind == yaml.MappingNode && i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i], mapping.Content[i+1]
		}
	}
	return nil, nil
}

// textEdit replaces length bytes at an offset.
type textEdit struct {
	offset, length int
	by             string
}

func (e textEdit) apply(text []byte) []byte {
	return bytes.Join([][]byte{text[:e.offset], text[e.offset+e.length:]}, []byte(e.by))
}

// poolEdit returns the edit that sets a key of the pool of an SSP.
func poolEdit(text []byte, ssp *yaml.Node, key, value string) (textEdit, error) {
	poolKey, pool := pairOf(ssp, "pool")
	if pool == nil {
		nameKey, name := pairOf(ssp, "name")
		if name == nil || name.Kind != yaml.ScalarNode {
			return textEdit{}, errors.New("the name is merged")
		}
		end, err := endOf(text, name)
		if err != nil {
			return textEdit{}, err
		}
		by := ", pool: {" + key + ": " + value + "}"
		if ssp.Style&yaml.FlowStyle == 0 {
			end += len(lineAt(text, end))
			by = "\n" + strings.Repeat(" ", nameKey.Column-1) + "pool: {" + key + ": " + value + "}"
		}
		return textEdit{end, 0, by}, nil
	}
	if pool.Kind == yaml.ScalarNode && pool.Value == "" && pool.Tag == "!!null" {
		end, err := endOf(text, poolKey)
		return textEdit{end + 1, 0, " {" + key + ": " + value + "}"}, err
	}
	if pool.Kind != yaml.MappingNode {
		return textEdit{}, errors.New("the pool is an alias")
	}
	if _, old := pairOf(pool, key); old != nil {
		start := offsetOf(text, old)
		end, err := endOf(text, old)
		return textEdit{start, end - start, value}, err
	}
	inBraces := pool.Style&yaml.FlowStyle != 0
	switch {
	case len(pool.Content) == 0:
		return textEdit{offsetOf(text, pool) + 1, 0, key + ": " + value}, nil
	case inBraces:
		return textEdit{offsetOf(text, pool.Content[0]), 0, key + ": " + value + ", "}, nil
	}
	first := pool.Content[0]
	return textEdit{offsetOf(text, first), 0, key + ": " + value + "\n" + strings.Repeat(" ", first.Column-1)}, nil
}

// offsetOf returns the offset of a node's first byte.
func offsetOf(text []byte, node *yaml.Node) int {
	offset := 0
	for range node.Line - 1 {
		offset += bytes.IndexByte(text[offset:], '\n') + 1
	}
	for range node.Column - 1 {
		_, size := utf8.DecodeRune(text[offset:])
		offset += size
	}
	return offset
}

// endOf returns the offset behind a scalar, which must be written in one line without escapes.
func endOf(text []byte, node *yaml.Node) (int, error) {
	start := offsetOf(text, node)
	for _, quote := range []string{"", `"`, "'"} {
		if written := quote + node.Value + quote; node.Kind == yaml.ScalarNode && node.Value != "" && bytes.HasPrefix(text[start:], []byte(written)) {
			return start + len(written), nil
		}
	}
	return 0, fmt.Errorf("the value at column %d is written in a form that is not edited", node.Column)
}

// lineAt returns the text from an offset to the end of its line, without the line feed.
func lineAt(text []byte, offset int) []byte {
	line, _, _ := bytes.Cut(text[offset:], []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r"))
}
