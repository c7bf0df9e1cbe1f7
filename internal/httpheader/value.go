package httpheader

import "iter"

// elements returns the non-empty elements of a comma-separated list without the blanks around them. RFC 9110,
// section 5.6.1.
func elements(list []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for start := 0; start <= len(list); {
			end := start
			for end < len(list) && list[end] != ',' {
				end++
			}
			if e := trim(list[start:end]); len(e) > 0 && !yield(e) {
				return
			}
			start = end + 1
		}
	}
}

// trim returns b without the blanks around it.
func trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// sameName reports whether a and b are one name, in any case and with '_' read as '-'. Names have only bytes
// of tokens; anything else is no name and equals none.
func sameName(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i, c := range a {
		if plain[c] != plain[b[i]] || plain[c] == 0 {
			return false
		}
	}
	return true
}

// parseLength returns the number that v, a Content-Length, says, or -1 if it is anything but 1 to 18 digits.
// RFC 9110, section 8.6; eighteen digits are more bytes than there are and still fit.
func parseLength(v []byte) int64 {
	if len(v) == 0 || len(v) > 18 {
		return -1
	}
	n := int64(0)
	for _, c := range v {
		if c < '0' || c > '9' {
			return -1
		}
		n = n*10 + int64(c-'0')
	}
	return n
}

// isHost reports whether v has only bytes that a host and port may have. Empty is allowed: it says that the
// target has no authority. RFC 9110, section 7.2; RFC 3986, section 3.2.2.
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
