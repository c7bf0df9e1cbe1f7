package syntax

import "unicode/utf16"

// at returns b[i], or 0 beyond the end; 0 is not a byte of JSON.
func at(b []byte, i int) byte {
	if i < len(b) {
		return b[i]
	}
	return 0
}

func skipBlanks(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the offset after the string that starts at b[i], or -1 if it is not a valid
// string.
func skipString(b []byte, i int) int {
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
			_, n := unescape(b[i:])
			if n == 0 {
				return -1
			}
			i += n - 1
		}
	}
	return -1
}

// unescape decodes the escape at the start of b. It returns the character and the length of the
// escape. n is 0 if it is not an escape, or is half of a surrogate pair.
func unescape(b []byte) (r rune, n int) {
	switch at(b, 1) {
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
		if r < 0 || at(b, 6) != '\\' || at(b, 7) != 'u' {
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
		digit := HexDigit(at(b, i))
		if digit < 0 {
			return -1
		}
		r = r<<4 | rune(digit)
		i++
	}
	return r
}

func skipLiteral(b []byte, i int, literal string) int {
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
	if at(b, i) == '-' {
		i++
	}
	whole := i
	if at(b, i) == '0' {
		i++
	} else if i = skipDigits(b, i); i < 0 {
		return -1
	}
	digits, fraction, exponent := i-whole, 0, 0
	plain := true // an integer without an exponent
	if at(b, i) == '.' {
		from := i + 1
		i = skipDigits(b, from)
		if i < 0 {
			return -1
		}
		fraction, plain = i-from, false
	}
	if at(b, i)|0x20 == 'e' {
		i++
		negative := at(b, i) == '-'
		if negative || at(b, i) == '+' {
			i++
		}
		from := i
		i = skipDigits(b, i)
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

// skipDigits returns the offset after one or more digits, or -1.
func skipDigits(b []byte, i int) int {
	start := i
	for IsDigit(at(b, i)) {
		i++
	}
	if i == start {
		return -1
	}
	return i
}
