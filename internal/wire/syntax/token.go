// Package syntax reads the small parts that messages are made of. Of HTTP: tokens, field values, lists,
// numbers, field lines and the lines of chunked bodies. Of JSON, without building values: it validates a
// document, skips and decodes parts of one, and writes strings.
//
// All parsers of adbuffer use this package, so that no two of them disagree about a byte. Only the simulated SSP has
// a parser of its own, because it checks adbuffer's from outside.
//
// No function changes its arguments, and none that reads HTTP allocates. Bytes from 0x80 up are legal in field values
// and illegal in tokens.
package syntax

// Lower maps each byte of a token to lower case, and all other bytes to 0. RFC 9110, section 5.6.2.
// It must not be changed.
var Lower = func() (t [256]byte) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz") {
		t[c] = c
	}
	for c := byte('A'); c <= 'Z'; c++ {
		t[c] = c | 0x20
	}
	return t
}()

// IsTokenByte reports whether c is legal in a token, such as the name of a field.
func IsTokenByte(c byte) bool { return Lower[c] != 0 }

// IsToken reports whether v is a token: one byte or more, all legal.
func IsToken(v []byte) bool {
	for _, c := range v {
		if !IsTokenByte(c) {
			return false
		}
	}
	return len(v) > 0
}

// EqualFold reports whether a and b are equal except for the case of ASCII letters. They may hold
// any bytes.
func EqualFold(a []byte, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i, c := range a {
		if folded[c] != folded[b[i]] {
			return false
		}
	}
	return true
}

// IsHTTP reports whether a URL's scheme is http or https.
func IsHTTP(scheme []byte) bool { return EqualFold(scheme, "http") || EqualFold(scheme, "https") }

// folded maps ASCII letters to lower case, and every other byte to itself.
var folded = func() (t [256]byte) {
	for i := range t {
		t[i] = byte(i)
	}
	for c := byte('A'); c <= 'Z'; c++ {
		t[c] = c | 0x20
	}
	return t
}()

// IsConnectionSpecific reports whether a field with this name controls an HTTP/1 connection, so that an HTTP/2
// message must not have it. For TE it returns false, because one value of TE is legal. RFC 9113, section 8.2.2.
func IsConnectionSpecific(name []byte) bool {
	switch len(name) {
	case len("upgrade"):
		return EqualFold(name, "upgrade")
	case len("connection"): // keep-alive has the same length
		return EqualFold(name, "connection") || EqualFold(name, "keep-alive")
	case len("proxy-connection"):
		return EqualFold(name, "proxy-connection")
	case len("transfer-encoding"):
		return EqualFold(name, "transfer-encoding")
	}
	return false
}
