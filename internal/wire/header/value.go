package header

import (
	"adbuffer/internal/wire/syntax"
)

// sameName reports whether a and b are the same name, in any case and with '_' read as '-'. Names
// consist of token bytes; any other value equals no name.
func sameName[T string | []byte](a []byte, b T) bool {
	if len(a) != len(b) {
		return false
	}
	for i, c := range a {
		if folded[c] != folded[b[i]] || folded[c] == 0 {
			return false
		}
	}
	return true
}

// parseLength returns the number in v, a Content-Length, or -1 unless v has 1 to 18 digits. RFC
// 9110, section 8.6. Eighteen digits fit into an int64, and no body is that long.
func parseLength(v []byte) int64 {
	if len(v) > 18 {
		return -1
	}
	n, ok := syntax.ParseNumber(v, syntax.MaxNumber)
	if !ok {
		return -1
	}
	return int64(n)
}
