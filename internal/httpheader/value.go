package httpheader

import (
	"adbuffer/internal/syntax"
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

// isHost reports whether v has only bytes that are allowed in a host and port. An empty v is
// allowed: it means that the target has no authority. RFC 9110, section 7.2; RFC 3986, section
// 3.2.2.
func isHost(v []byte) bool {
	for _, c := range v {
		if !hostBytes[c] {
			return false
		}
	}
	return true
}

var hostBytes = func() (t [256]bool) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~%!$&'()*+,;=:[]") {
		t[c] = true
	}
	return t
}()
