package openrtb

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"

	"adbuffer/internal/syntax"
)

// skipString returns the offset after the string that starts at b[i], or -1 if it is not a string of RFC
// 8259. Its bytes may be no UTF-8, and its escapes lone surrogates.
func skipString(b []byte, i int) int {
	if syntax.JSONByte(b, i) != '"' {
		return -1
	}
	i = skipPlain(b, i+1)
	if syntax.JSONByte(b, i) == '"' {
		return i + 1
	}
	return skipEscapes(b, i)
}

// skipEscapes returns the offset after the string that goes on at b[i], or -1.
func skipEscapes(b []byte, i int) int {
	for {
		switch syntax.JSONByte(b, i) {
		case '"':
			return i + 1
		case '\\':
			switch syntax.JSONByte(b, i+1) {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				i += 2
			case 'u':
				if syntax.Hex4(b, i+2) < 0 {
					return -1
				}
				i += 6
			default:
				return -1
			}
		default:
			return -1
		}
		i = skipPlain(b, i)
	}
}

// skipPlain returns the offset of the next quote, backslash or control character, or the end of b. It
// examines eight bytes at a time.
func skipPlain(b []byte, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(b); i += 8 {
		v := binary.LittleEndian.Uint64(b[i:])
		// A byte of (x - n*ones) & ^x has its high bit if that byte of x is below n. A borrow may set bits only
		// above the first such byte. Only quotes (0x22) and control characters are below 0x21 after ^2. No XOR
		// here changes a high bit, so ^v serves both terms.
		quotesAndControls, backslashes := (v^2*ones)-0x21*ones, (v^'\\'*ones)-ones
		found := (quotesAndControls | backslashes) &^ v & highs
		if found != 0 {
			return i + bits.TrailingZeros64(found)>>3
		}
	}
	for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// skipScalar returns the offset after the number or literal that starts at b[i], or -1.
func skipScalar(b []byte, i int) int {
	switch syntax.JSONByte(b, i) {
	case 't':
		return syntax.SkipJSONLiteral(b, i, "true")
	case 'f':
		return syntax.SkipJSONLiteral(b, i, "false")
	case 'n':
		return syntax.SkipJSONLiteral(b, i, "null")
	}
	return skipNumber(b, i)
}

// skipNumber returns the offset after the number that starts at b[i], or -1.
func skipNumber(b []byte, i int) int {
	if syntax.JSONByte(b, i) == '-' {
		i++
	}
	start := i
	i = syntax.SkipDigits(b, i)
	if i < 0 || b[start] == '0' && i > start+1 {
		return -1
	}
	c := syntax.JSONByte(b, i)
	if c == '.' {
		i = syntax.SkipDigits(b, i+1)
		if i < 0 {
			return -1
		}
		c = syntax.JSONByte(b, i)
	}
	if c|0x20 != 'e' {
		return i
	}
	i++
	if c := syntax.JSONByte(b, i); c == '+' || c == '-' {
		i++
	}
	return syntax.SkipDigits(b, i)
}

// appendUnescaped appends the content of a string without its escapes. s is the string's bytes between
// its quotes; skipString has accepted it. A lone surrogate becomes U+FFFD.
func appendUnescaped(b, s []byte) []byte {
	for len(s) > 0 {
		if s[0] != '\\' {
			b, s = append(b, s[0]), s[1:]
			continue
		}
		r, n := syntax.JSONEscape(s)
		if n == 0 {
			r, n = utf8.RuneError, len(`\ud800`)
		}
		b, s = utf8.AppendRune(b, r), s[n:]
	}
	return b
}
