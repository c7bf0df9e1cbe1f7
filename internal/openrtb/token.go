package openrtb

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"

	"adbuffer/internal/syntax"
)

// at returns b[i], or 0 beyond the end; 0 is not a byte of JSON.
func at(b []byte, i int) byte {
	if uint(i) < uint(len(b)) {
		return b[i]
	}
	return 0
}

// skipBlanks returns the offset of the next byte that is no blank, or the end of b.
func skipBlanks(b []byte, i int) int {
	if uint(i) < uint(len(b)) && b[i] > ' ' {
		return i
	}
	return skipMoreBlanks(b, i)
}

func skipMoreBlanks(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the offset after the string that starts at b[i], or -1 if it is not a string of RFC
// 8259. Its bytes may be no UTF-8, and its escapes lone surrogates.
func skipString(b []byte, i int) int {
	if at(b, i) != '"' {
		return -1
	}
	i = skipPlain(b, i+1)
	if at(b, i) == '"' {
		return i + 1
	}
	return skipEscapes(b, i)
}

// skipEscapes returns the offset after the string that goes on at b[i], or -1.
func skipEscapes(b []byte, i int) int {
	for {
		switch at(b, i) {
		case '"':
			return i + 1
		case '\\':
			switch at(b, i+1) {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				i += 2
			case 'u':
				if hex4(b, i+2) < 0 {
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
		quotes, backslashes := v^('"'*ones), v^('\\'*ones)
		// A byte of (x - ones) & ^x has its high bit if that byte of x is 0. A borrow may set bits only
		// above the first such byte.
		found := ((quotes-ones)&^quotes | (backslashes-ones)&^backslashes | (v-' '*ones)&^v) & highs
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
	switch at(b, i) {
	case 't':
		return skipLiteral(b, i, "true")
	case 'f':
		return skipLiteral(b, i, "false")
	case 'n':
		return skipLiteral(b, i, "null")
	}
	return skipNumber(b, i)
}

func skipLiteral(b []byte, i int, literal string) int {
	if len(b)-i < len(literal) || string(b[i:i+len(literal)]) != literal {
		return -1
	}
	return i + len(literal)
}

// skipNumber returns the offset after the number that starts at b[i], or -1.
func skipNumber(b []byte, i int) int {
	if at(b, i) == '-' {
		i++
	}
	start := i
	i = skipDigits(b, i)
	if i < 0 || b[start] == '0' && i > start+1 {
		return -1
	}
	c := at(b, i)
	if c == '.' {
		i = skipDigits(b, i+1)
		if i < 0 {
			return -1
		}
		c = at(b, i)
	}
	if c|0x20 != 'e' {
		return i
	}
	i++
	if c := at(b, i); c == '+' || c == '-' {
		i++
	}
	return skipDigits(b, i)
}

// skipDigits returns the offset after one or more digits, or -1.
func skipDigits(b []byte, i int) int {
	start := i
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

// hex4 decodes four hexadecimal digits at b[i], or returns -1.
func hex4(b []byte, i int) (r rune) {
	for range 4 {
		digit := syntax.HexDigit(at(b, i))
		if digit < 0 {
			return -1
		}
		r = r<<4 | rune(digit)
		i++
	}
	return r
}

// appendUnescaped appends the content of a string without its escapes. s is the string's bytes between
// its quotes; skipString has accepted it. A lone surrogate becomes U+FFFD.
func appendUnescaped(b, s []byte) []byte {
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			b = append(b, s[i])
			i++
			continue
		}
		c := s[i+1]
		i += 2
		switch c {
		case 'b':
			b = append(b, '\b')
		case 'f':
			b = append(b, '\f')
		case 'n':
			b = append(b, '\n')
		case 'r':
			b = append(b, '\r')
		case 't':
			b = append(b, '\t')
		case 'u':
			r := hex4(s, i)
			i += 4
			if utf16.IsSurrogate(r) {
				second := rune(-1)
				if at(s, i) == '\\' && at(s, i+1) == 'u' {
					second = hex4(s, i+2)
				}
				r = utf16.DecodeRune(r, second)
				if r != utf8.RuneError {
					i += 6
				}
			}
			b = utf8.AppendRune(b, r)
		default:
			b = append(b, c)
		}
	}
	return b
}
