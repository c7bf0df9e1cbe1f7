package syntax

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
)

// JSONByte returns b[i], or 0 beyond the end; 0 is not a byte of JSON.
func JSONByte(b []byte, i int) byte {
	if uint(i) < uint(len(b)) {
		return b[i]
	}
	return 0
}

// SkipJSONBlanks returns the offset of the first byte from b[i] on that is not blank, or the length of b.
func SkipJSONBlanks(b []byte, i int) int {
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

// SkipJSONString returns the offset after the string that starts at b[i], or -1. The string may hold bytes that are
// not UTF-8, and lone surrogates.
func SkipJSONString(b []byte, i int) int { return skipString(b, i, false) }

// skipString is SkipJSONString, except that it refuses lone surrogates if refuseLone is set.
func skipString(b []byte, i int, refuseLone bool) int {
	if JSONByte(b, i) != '"' {
		return -1
	}
	i = skipPlain(b, i+1)
	if JSONByte(b, i) == '"' {
		return i + 1
	}
	return skipEscapes(b, i, refuseLone)
}

// skipEscapes returns the offset after the string whose rest begins at b[i], or -1.
func skipEscapes(b []byte, i int, refuseLone bool) int {
	for {
		i = skipPlain(b, i)
		for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' { // the last seven bytes
			i++
		}
		switch JSONByte(b, i) {
		case '"':
			return i + 1
		case '\\':
		default:
			return -1
		}
		_, n := JSONEscape(b[i:])
		if n == 0 && !refuseLone && JSONByte(b, i+1) == 'u' && hex4(b, i+2) >= 0 {
			n = len(`\ud800`)
		}
		if n == 0 {
			return -1
		}
		i += n
	}
}

// skipPlain returns the offset of the next quote, backslash or control character. If it finds none before the last
// seven bytes, it returns the offset of one of these. It examines eight bytes at a time, and is inlined.
func skipPlain(b []byte, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(b); i += 8 {
		v := binary.LittleEndian.Uint64(b[i : i+8 : i+8]) // with this capacity, the pointer depends on nothing but i
		// A byte of (x - n*ones) & ^x has its high bit if that byte of x is below n. A borrow may set bits only
		// above the first such byte. Only quotes (0x22) and control characters are below 0x21 after ^2. No XOR
		// here changes a high bit, so ^v serves both terms.
		quotesAndControls, backslashes := (v^2*ones)-0x21*ones, (v^'\\'*ones)-ones
		found := (quotesAndControls | backslashes) & (^v & highs)
		if found != 0 {
			return i + bits.TrailingZeros64(found)>>3
		}
	}
	return i
}

// JSONEscape decodes the escape at the start of b. It returns the character and the length of the escape. n is 0 if b
// does not begin with an escape, or begins with half of a surrogate pair.
func JSONEscape(b []byte) (r rune, n int) {
	switch JSONByte(b, 1) {
	case '"', '\\', '/':
		return rune(b[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r = hex4(b, 2)
		if r >= 0 && !utf16.IsSurrogate(r) {
			return r, 6
		}
		if r < 0 || JSONByte(b, 6) != '\\' || JSONByte(b, 7) != 'u' {
			return 0, 0
		}
		r = utf16.DecodeRune(r, hex4(b, 8))
		if r != '\uFFFD' {
			return r, 12
		}
	}
	return 0, 0
}

// hex4 decodes four hexadecimal digits at b[i], or returns -1.
func hex4(b []byte, i int) (r rune) {
	for range 4 {
		digit := HexDigit(JSONByte(b, i))
		if digit < 0 {
			return -1
		}
		r = r<<4 | rune(digit)
		i++
	}
	return r
}

// skipNumber returns the offset after the number that starts at b[i], or -1.
func skipNumber(b []byte, i int) int {
	if JSONByte(b, i) == '-' {
		i++
	}
	start := i
	i = skipDigits(b, i)
	if i < 0 || b[start] == '0' && i > start+1 {
		return -1
	}
	c := JSONByte(b, i)
	if c == '.' {
		i = skipDigits(b, i+1)
		if i < 0 {
			return -1
		}
		c = JSONByte(b, i)
	}
	if c|0x20 != 'e' {
		return i
	}
	i++
	if c := JSONByte(b, i); c == '+' || c == '-' {
		i++
	}
	return skipDigits(b, i)
}

// skipDigits returns the offset after one or more digits that start at b[i], or -1.
func skipDigits(b []byte, i int) int {
	start := i
	for IsDigit(JSONByte(b, i)) {
		i++
	}
	if i == start {
		return -1
	}
	return i
}
