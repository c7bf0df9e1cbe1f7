package syntax

import "bytes"

// JSONMember finds the first member with this key in the object at the start of b. It returns the
// value as b[start:end], without blanks around it. start is end if the member is missing, or if b
// ends before the comma or bracket after the value. quotedKey is the key in quotes; a key that is
// spelled with escapes is not found.
//
// JSONMember only examines strings and brackets. In valid JSON it finds the same value as a parser;
// in other text the result is undefined.
func JSONMember(b, quotedKey []byte) (start, end int) {
	if !bytes.Contains(b, quotedKey) {
		return 0, 0 // this check costs a tenth of a scan
	}
	i := skipBlanks(b, 0)
	if at(b, i) != '{' {
		return 0, 0
	}
	for {
		// The next token is a key, or the end of the object.
		key := skipBlanks(b, i+1)
		if at(b, key) != '"' {
			return 0, 0
		}
		if i = stringEnd(b, key); i < 0 {
			return 0, 0
		}
		found := bytes.Equal(b[key:i], quotedKey)
		if i = skipBlanks(b, i); at(b, i) != ':' {
			return 0, 0
		}
		value := skipBlanks(b, i+1)
		if i = valueEnd(b, value); i < 0 {
			return 0, 0
		}
		switch {
		case found && b[i] != ']':
			return value, value + len(bytes.TrimRight(b[value:i], " \t\n\r"))
		case b[i] != ',':
			return 0, 0
		}
	}
}

// stringEnd returns the offset after the string that begins at b[i], or -1 if it has no end. Unlike
// skipString it accepts every byte in a string.
func stringEnd(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return -1
}

// valueEnd returns the offset of the comma or bracket after the value that begins at b[i], at the
// same depth, or -1.
func valueEnd(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch tokens[b[i]] {
		case opening:
			depth++
		case closing:
			if depth == 0 {
				return i
			}
			depth--
		case comma:
			if depth == 0 {
				return i
			}
		case quote:
			if i = stringEnd(b, i); i < 0 {
				return -1
			}
			continue
		}
		i++
	}
	return -1
}

// tokens classifies the bytes outside of strings for valueEnd.
var tokens = [256]uint8{'{': opening, '[': opening, '}': closing, ']': closing, ',': comma, '"': quote}

const (
	other uint8 = iota
	opening
	closing
	comma
	quote
)
