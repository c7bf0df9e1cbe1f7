package syntax

import "unicode/utf16"

// JSONByte returns b[i], or 0 beyond the end; 0 is not a byte of JSON.
func JSONByte(b []byte, i int) byte {
	if uint(i) < uint(len(b)) {
		return b[i]
	}
	return 0
}

// SkipJSONBlanks returns the offset of the next byte from b[i] on that is no blank, or the end of b.
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

// skipString returns the offset after the string that starts at b[i], or -1 if it is not a valid
// string.
func skipString(b []byte, i int) int {
	if JSONByte(b, i) != '"' {
		return -1
	}
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c < ' ':
			return -1
		case c == '\\':
			_, n := JSONEscape(b[i:])
			if n == 0 {
				return -1
			}
			i += n - 1
		}
	}
	return -1
}

// JSONEscape decodes the escape at the start of b. It returns the character and the length of the
// escape. n is 0 if it is not an escape, or is half of a surrogate pair.
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
		r = Hex4(b, 2)
		if r >= 0 && !utf16.IsSurrogate(r) {
			return r, 6
		}
		if r < 0 || JSONByte(b, 6) != '\\' || JSONByte(b, 7) != 'u' {
			return 0, 0
		}
		r = utf16.DecodeRune(r, Hex4(b, 8))
		if r != '\uFFFD' {
			return r, 12
		}
	}
	return 0, 0
}

// Hex4 decodes four hexadecimal digits at b[i], or returns -1.
func Hex4(b []byte, i int) (r rune) {
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

// SkipJSONLiteral returns the offset after literal, which starts at b[i], or -1 if it does not.
func SkipJSONLiteral(b []byte, i int, literal string) int {
	if len(b)-i < len(literal) || string(b[i:i+len(literal)]) != literal {
		return -1
	}
	return i + len(literal)
}

const (
	// MaxJSONNumberBytes is how long a number may be. float64 needs 17 digits.
	MaxJSONNumberBytes = 64
	// maxExponent bounds the powers of ten of the first and the last digit of a number with a
	// fraction or an exponent. Then float64 holds both.
	maxExponent = 307
)

// skipNumber returns the offset after the number that starts at b[i], or -1 if some parser refuses
// it. Go, Rust and other parsers refuse 1e400, simdjson an integer of more than 64 bits, Python one
// of 4301 digits.
func skipNumber(b []byte, i int) int {
	start := i
	if JSONByte(b, i) == '-' {
		i++
	}
	whole := i
	if JSONByte(b, i) == '0' {
		i++
	} else if i = SkipDigits(b, i); i < 0 {
		return -1
	}
	digits, fraction, exponent := i-whole, 0, 0
	plain := true // an integer without an exponent
	if JSONByte(b, i) == '.' {
		from := i + 1
		i = SkipDigits(b, from)
		if i < 0 {
			return -1
		}
		fraction, plain = i-from, false
	}
	if JSONByte(b, i)|0x20 == 'e' {
		i++
		negative := JSONByte(b, i) == '-'
		if negative || JSONByte(b, i) == '+' {
			i++
		}
		from := i
		i = SkipDigits(b, i)
		if i < 0 {
			return -1
		}
		for _, c := range b[from:i] {
			exponent = min(10*exponent+int(c-'0'), 10*maxExponent)
		}
		if negative {
			exponent = -exponent
		}
		plain = false
	}
	switch {
	case i-start > MaxJSONNumberBytes:
		return -1
	case plain && !fits64(b[whole:i], whole > start):
		return -1
	case !plain && (exponent+digits-1 > maxExponent || exponent-fraction < -maxExponent):
		return -1
	}
	return i
}

// fits64 reports whether an integer fits into 64 bits, signed or unsigned.
func fits64(digits []byte, negative bool) bool {
	limit := "18446744073709551615"
	if negative {
		limit = "9223372036854775808"
	}
	return len(digits) < len(limit) || len(digits) == len(limit) && string(digits) <= limit
}

// SkipDigits returns the offset after one or more digits that start at b[i], or -1.
func SkipDigits(b []byte, i int) int {
	start := i
	for IsDigit(JSONByte(b, i)) {
		i++
	}
	if i == start {
		return -1
	}
	return i
}
