package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"adbuffer/internal/wire/openrtb"
)

// JSONValue is the JSON text of a string, number or boolean.
type JSONValue string

var (
	errNotJSONValue   = errors.New("must be text, true, false, or a number of at most 64 bytes")
	errAmbiguousValue = errors.New("must be in quotes if it is text, or a number in decimal digits without leading zeros: YAML reads 0123 as 83, and 1_000 as 1000")
	errHugeValue      = errors.New("must be in quotes if it is text, or a number below 1.8e308: YAML reads a larger one as text")
)

// jsonValueOf returns the value of a YAML scalar. A number keeps its digits.
func jsonValueOf(node *yaml.Node) (JSONValue, error) {
	switch node.ShortTag() {
	case "!!str":
		if node.Style == 0 && isHuge(node.Value) {
			return "", errHugeValue
		}
		return jsonText(node.Value), nil
	case "!!bool":
		return JSONValue(strings.ToLower(node.Value)), nil
	case "!!int", "!!float":
		if isAmbiguous(node.Value) {
			return "", errAmbiguousValue
		}
		if _, err := openrtb.ParseValue([]byte(node.Value)); err == nil {
			return JSONValue(node.Value), nil
		}
		// A notation that YAML has and JSON has not, such as +1 and .5.
		var n float64
		if node.Decode(&n) == nil {
			text := strconv.FormatFloat(n, 'g', -1, 64)
			if _, err := openrtb.ParseValue([]byte(text)); err == nil {
				return JSONValue(text), nil
			}
		}
	}
	return "", errNotJSONValue
}

// jsonValueOfText returns the value of a variable's text: a number or boolean if the text is one, or
// else a JSON string.
func jsonValueOfText(text string) (JSONValue, error) {
	if isHuge(text) {
		return "", errHugeValue
	}
	if _, err := openrtb.ParseValue([]byte(text)); err == nil {
		return JSONValue(text), nil
	}
	return jsonText(text), nil
}

// isHuge reports whether text is a number that float64 cannot hold.
func isHuge(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	return errors.Is(err, strconv.ErrRange)
}

func jsonText(text string) JSONValue {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(text); err != nil {
		panic("BUG: text makes no JSON: " + err.Error())
	}
	return JSONValue(bytes.TrimRight(b.Bytes(), "\n"))
}

// node returns the value as YAML.
func (v JSONValue) node() *yaml.Node {
	if !strings.HasPrefix(string(v), `"`) {
		return scalar("", string(v))
	}
	var text string
	if err := json.Unmarshal([]byte(v), &text); err != nil {
		panic("BUG: a value is no JSON: " + err.Error())
	}
	return quoted(text)
}

// Shown returns v as an explanation may show it, in a condition on path.
func (v JSONValue) Shown(path string) string { return hideCondition(path, string(v)) }
