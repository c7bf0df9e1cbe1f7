package header

import (
	"bytes"

	"adbuffer/internal/wire/syntax"
)

// SameAuthority reports whether a and b, two values of :authority or Host, name the same host and port. It ignores
// case, the default port of scheme, which is "http" or "https", and the dot that ends an absolute DNS name.
func SameAuthority(a, b, scheme []byte) bool {
	hostA, portA, okA := parseAuthority(a, scheme)
	hostB, portB, okB := parseAuthority(b, scheme)
	return okA && okB && portA == portB && syntax.EqualFold(hostA, string(hostB))
}

// parseAuthority splits v, host[:port], into the host without the dot that ends an absolute DNS name,
// and the port. Without a port it returns the default port of scheme, which may be nil. ok is false
// unless v is the authority of an http URL: RFC 9110, section 4.2, and RFC 3986, section 3.2.
func parseAuthority(v, scheme []byte) (host []byte, port int, ok bool) {
	end := 0
	if len(v) > 0 && v[0] == '[' {
		end = bytes.IndexByte(v, ']') + 1
		if end == 0 || bytes.IndexByte(v[:end], ':') < 0 {
			return nil, 0, false
		}
		if _, isAddress := ParseAddress(v[1 : end-1]); !isAddress {
			return nil, 0, false
		}
	} else {
		for end < len(v) && isHostByte[v[end]] {
			end++
		}
		if !escapesAreComplete(v[:end]) {
			return nil, 0, false
		}
	}
	port = 80
	if syntax.EqualFold(scheme, "https") {
		port = 443
	}
	host, v = bytes.TrimSuffix(v[:end], []byte(".")), v[end:]
	if len(v) > 1 {
		port, ok = syntax.ParseNumber(v[1:], maxPort+1)
		if !ok || port > maxPort {
			return nil, 0, false
		}
	}
	return host, port, len(host) > 0 && (len(v) == 0 || v[0] == ':')
}

const maxPort = 1<<16 - 1

// escapesAreComplete reports whether two hexadecimal digits follow each percent sign of host.
func escapesAreComplete(host []byte) bool {
	for {
		_, digits, found := bytes.Cut(host, []byte("%"))
		if !found {
			return true
		}
		if len(digits) < 2 || syntax.HexDigit(digits[0]) < 0 || syntax.HexDigit(digits[1]) < 0 {
			return false
		}
		host = digits[2:]
	}
}

// isHostByte says which bytes a host name consists of: the reg-name of RFC 3986, section 3.2.2.
var isHostByte = func() (t [256]bool) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~%!$&'()*+,;=") {
		t[c] = true
	}
	return t
}()
