package syntax

// MaxNumber is the largest limit that ParseNumber accepts.
const MaxNumber = 1 << 60

// ParseNumber reads v as a decimal number of any length. A number above limit is returned as limit,
// so no number overflows. ok is false if v is empty or has a byte that is no digit.
func ParseNumber(v []byte, limit int) (n int, ok bool) {
	sum := uint64(0)
	for _, c := range v {
		if !IsDigit(c) {
			return 0, false
		}
		sum = min(sum*10+uint64(c-'0'), MaxNumber)
	}
	return int(min(sum, uint64(limit))), len(v) > 0
}

// ParseStatus reads v as the status code of a response: three digits, from 100 to 599. RFC 9110,
// section 15.
func ParseStatus(v []byte) (status int, ok bool) {
	if len(v) != 3 {
		return 0, false
	}
	status, ok = ParseNumber(v, 999)
	return status, ok && status >= 100 && status <= 599
}

// IsDigit reports whether c is a decimal digit.
func IsDigit(c byte) bool { return '0' <= c && c <= '9' }

// HexDigit returns the value of a hexadecimal digit in any case, and -1 for any other byte.
func HexDigit(c byte) int {
	switch lower := c | 0x20; {
	case IsDigit(c):
		return int(c - '0')
	case 'a' <= lower && lower <= 'f':
		return int(lower-'a') + 10
	}
	return -1
}
