package route

import (
	"bytes"

	"adbuffer/internal/httpheader"
)

// isJSONType reports whether a Content-Type is JSON: application/json or a type
// with the suffix +json (RFC 6839, section 3.1), whatever its parameters.
func isJSONType(v []byte) bool {
	v, _, _ = bytes.Cut(v, []byte{';'})
	v = bytes.TrimRight(v, " \t")
	const suffix = "+json"
	return httpheader.EqualFold(v, "application/json") ||
		bytes.IndexByte(v, '/') > 0 && len(v) > len(suffix) && httpheader.EqualFold(v[len(v)-len(suffix):], suffix)
}

// maxDepth is how deep a body may nest that is inlined. Parsers give up at some
// depth (.NET's at 64, others at 100 to 1000), and an envelope that cannot be
// parsed loses the other SSPs' answers too. With the three levels around a body
// all of those can read it. Bid responses nest about ten deep.
const maxDepth = 60

// isJSON reports whether b, which is UTF-8, is one JSON value (RFC 8259) that
// nests no deeper than maxDepth. It does json.Valid's work in less than half the
// time, which is most of what an envelope costs.
func isJSON(b []byte) bool {
	depth := 0
	var objects uint64 // bit n: what is open at depth n is an object
	i := blanks(b, 0)
	for {
		// b[i] starts a value.
		opened := false
		switch at(b, i) {
		case '{', '[':
			if depth++; depth > maxDepth {
				return false
			}
			objects &^= 1 << depth
			if b[i] == '{' {
				objects |= 1 << depth
			}
			i, opened = i+1, true
		case '"':
			i = pastString(b, i)
		case 't':
			i = pastLiteral(b, i, "true")
		case 'f':
			i = pastLiteral(b, i, "false")
		case 'n':
			i = pastLiteral(b, i, "null")
		default:
			i = pastNumber(b, i)
		}
		if i < 0 {
			return false
		}
		// What has ended, or is empty, may end what is around it.
		for i = blanks(b, i); ; i = blanks(b, i+1) {
			if depth == 0 {
				return i == len(b)
			}
			end := byte(']')
			if objects>>depth&1 == 1 {
				end = '}'
			}
			if at(b, i) != end {
				break
			}
			depth, opened = depth-1, false
		}
		if !opened {
			if at(b, i) != ',' {
				return false
			}
			i = blanks(b, i+1)
		}
		if objects>>depth&1 == 1 {
			if i = pastString(b, i); i < 0 {
				return false
			}
			if i = blanks(b, i); at(b, i) != ':' {
				return false
			}
			i = blanks(b, i+1)
		}
	}
}

// at returns b[i], or 0, which is no byte of JSON, beyond the end.
func at(b []byte, i int) byte {
	if i < len(b) {
		return b[i]
	}
	return 0
}

func blanks(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// pastString returns where the string that starts at b[i] has ended, -1 if there
// is none.
func pastString(b []byte, i int) int {
	if at(b, i) != '"' {
		return -1
	}
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c < ' ':
			return -1
		case c == '\\':
			i++
			switch at(b, i) {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					i++
					if !isHex(at(b, i)) {
						return -1
					}
				}
			default:
				return -1
			}
		}
	}
	return -1
}

func isHex(c byte) bool {
	return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f'
}

func pastLiteral(b []byte, i int, literal string) int {
	if len(b)-i < len(literal) || string(b[i:i+len(literal)]) != literal {
		return -1
	}
	return i + len(literal)
}

func pastNumber(b []byte, i int) int {
	if at(b, i) == '-' {
		i++
	}
	if at(b, i) == '0' {
		i++
	} else if i = pastDigits(b, i); i < 0 {
		return -1
	}
	if at(b, i) == '.' {
		if i = pastDigits(b, i+1); i < 0 {
			return -1
		}
	}
	if at(b, i)|0x20 == 'e' {
		if i++; at(b, i) == '+' || at(b, i) == '-' {
			i++
		}
		return pastDigits(b, i)
	}
	return i
}

// pastDigits wants one digit at least.
func pastDigits(b []byte, i int) int {
	start := i
	for isDigit(at(b, i)) {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
