package openrtb

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"

	"adbuffer/internal/wire/syntax"
)

// Value is a JSON string, number or boolean that conditions compare with.
type Value struct {
	other bool // the value is a number or a boolean
	// text is the content of a string, the canonical form of a number, or a boolean.
	text string
}

// ErrValue is the error of ParseValue.
var ErrValue = errors.New("must be text, a number or a boolean")

// ParseValue parses the JSON text of a string, number or boolean. A number may have up to maxNumber bytes.
func ParseValue(text []byte) (Value, error) {
	switch {
	case !json.Valid(text):
		return Value{}, ErrValue
	case string(text) == "true", string(text) == "false":
		return Value{other: true, text: string(text)}, nil
	case text[0] == '"':
		var s string
		if json.Unmarshal(text, &s) != nil {
			return Value{}, ErrValue
		}
		return Value{text: s}, nil
	}
	if c := text[0]; c != '-' && (c < '0' || c > '9') {
		return Value{}, ErrValue
	}
	number, ok := appendCanonical(nil, text)
	if !ok {
		return Value{}, ErrValue
	}
	return Value{other: true, text: string(number)}, nil
}

// A number that is longer than maxNumber bytes, or whose exponent exceeds maxExponent, equals no Value.
const (
	maxNumber   = 64
	maxExponent = 1e6
)

// appendCanonical appends the canonical form of a JSON number: the sign, the digits without leading and
// trailing zeros, and the power of ten of the last digit. Equal numbers have equal canonical forms. ok is
// false for a number beyond the bounds above.
func appendCanonical(b, number []byte) (canonical []byte, ok bool) {
	if len(number) > maxNumber {
		return b, false
	}
	start, exponent, fraction := len(b), 0, false
	if number[0] == '-' {
		b, number = append(b, '-'), number[1:]
	}
	digits := len(b)
	for i, c := range number {
		if c|0x20 == 'e' {
			e, ok := parseExponent(number[i+1:])
			if !ok {
				return b, false
			}
			exponent += e
			break
		}
		if c == '.' {
			fraction = true
			continue
		}
		if c != '0' || len(b) > digits {
			b = append(b, c)
		}
		if fraction {
			exponent--
		}
	}
	for len(b) > digits && b[len(b)-1] == '0' {
		b = b[:len(b)-1]
		exponent++
	}
	if len(b) == digits {
		return append(b[:start], '0'), true
	}
	return strconv.AppendInt(append(b, 'e'), int64(exponent), 10), true
}

// parseExponent parses an exponent with its sign. ok is false if it exceeds maxExponent.
func parseExponent(b []byte) (e int, ok bool) {
	negative := b[0] == '-'
	if negative || b[0] == '+' {
		b = b[1:]
	}
	for _, c := range b {
		e = 10*e + int(c-'0')
		if e > maxExponent {
			return 0, false
		}
	}
	if negative {
		e = -e
	}
	return e, true
}

// Floor returns the whole part of a JSON number: 937 for 937.5, 937.0 and 9.37e2. ok is false if the whole part is not
// from 0 to limit, or if the value is not a number of up to 64 bytes.
func Floor(value []byte, limit int) (n int, ok bool) {
	if len(value) == 0 || !syntax.IsDigit(value[0]) {
		return 0, false
	}
	var memory [2 * maxNumber]byte
	number, ok := appendCanonical(memory[:0], value)
	if !ok {
		return 0, false
	}
	digits, power, _ := bytes.Cut(number, []byte{'e'})
	exponent := 0
	if len(power) > 0 { // the canonical form of zero has no power
		exponent, _ = parseExponent(power)
	}
	for _, c := range digits[:max(0, min(len(digits), len(digits)+exponent))] {
		n = 10*n + int(c-'0')
		if n > limit {
			return 0, false
		}
	}
	for ; exponent > 0 && n > 0; exponent-- {
		n *= 10
		if n > limit {
			return 0, false
		}
	}
	return n, true
}
