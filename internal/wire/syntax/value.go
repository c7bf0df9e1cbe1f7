package syntax

import (
	"bytes"
	"encoding/binary"
	"iter"
	"math/bits"
)

// ControlAt returns the index of the first control byte except TAB in b, or len(b). It examines
// eight bytes at a time, which saves a third of the time for a request's header block.
func ControlAt(b []byte) int {
	const ones = 0x0101010101010101
	i := 0
	for len(b)-i >= 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		low7 := w & (ones * 0x7f)
		// In each byte: the top bit of low7+1 is set for DEL, and that of low7+0x60 for any value
		// from 0x20 up.
		hit := (low7 + ones | ^(low7 + ones*0x60)) &^ w & (ones * 0x80)
		if hit == 0 {
			i += 8
			continue
		}
		i += bits.TrailingZeros64(hit) >> 3
		if b[i] != '\t' {
			return i
		}
		i++
	}
	for i < len(b) && IsValueByte(b[i]) {
		i++
	}
	return i
}

// IsValueByte reports whether c is legal in the value of a field: no control byte except TAB. RFC 9110,
// section 5.5.
func IsValueByte(c byte) bool { return c >= ' ' && c != 0x7f || c == '\t' }

// IsValue reports whether all bytes of v are legal in the value of a field.
func IsValue(v []byte) bool { return ControlAt(v) == len(v) }

// IsTrimmedValue reports whether v is a value and neither begins nor ends with a blank, as HTTP/2
// demands. RFC 9113, section 8.2.1.
func IsTrimmedValue(v []byte) bool {
	return len(v) == 0 || !isBlank(v[0]) && !isBlank(v[len(v)-1]) && IsValue(v)
}

// IsVisible reports whether v has neither control bytes nor blanks. A request target must have
// none.
func IsVisible(v []byte) bool {
	return IsValue(v) && bytes.IndexByte(v, ' ') < 0 && bytes.IndexByte(v, '\t') < 0
}

// Trim returns v without the blanks around it.
func Trim(v []byte) []byte {
	for len(v) > 0 && isBlank(v[0]) {
		v = v[1:]
	}
	for len(v) > 0 && isBlank(v[len(v)-1]) {
		v = v[:len(v)-1]
	}
	return v
}

// isBlank reports whether c is optional whitespace. RFC 9110, section 5.6.3.
func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// Elements returns the non-empty elements of a comma-separated list, without the blanks around them.
// RFC 9110, section 5.6.1.
func Elements(list []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for e := range bytes.SplitSeq(list, []byte{','}) {
			e = Trim(e)
			if len(e) > 0 && !yield(e) {
				return
			}
		}
	}
}

// HasToken reports whether token is an element of a comma-separated list, in any case.
func HasToken(list []byte, token string) bool {
	for e := range Elements(list) {
		if EqualFold(e, token) {
			return true
		}
	}
	return false
}
