package header

import (
	"bytes"

	"adbuffer/internal/wire/syntax"
)

// appendShortAddrs appends the shortened addresses of list, a comma-separated list. others is the number of elements
// that are not addresses, which are omitted.
func appendShortAddrs(dst, list []byte) (_ []byte, addrs, others int) {
	for element := range syntax.Elements(list) {
		addr, ok := parseAddr(element)
		if !ok {
			others++
			continue
		}
		addrs++
		if addrs > 1 {
			dst = append(dst, ", "...)
		}
		dst = Shorten(addr).AppendTo(dst)
	}
	return dst, addrs, others
}

// appendShortForwarded appends v, the value of a Forwarded field (RFC 7239, section 4). It shortens addresses and drops
// their ports; host, proto and obfuscated identifiers stay as they are. ok is false, and dst unchanged, if v is malformed
// or if another parameter's value is neither an address nor such an identifier.
func appendShortForwarded(dst, v []byte) (_ []byte, ok bool) {
	before := len(dst)
	separator := ""
	for {
		v = syntax.Trim(v)
		eq := bytes.IndexByte(v, '=')
		if eq < 1 {
			return dst[:before], false
		}
		name := v[:eq]
		if !syntax.IsToken(name) {
			return dst[:before], false
		}
		value, rest, ok := cutForwardedValue(v[eq+1:])
		if !ok {
			return dst[:before], false
		}
		dst = append(dst, separator...)
		dst = append(dst, name...)
		dst = append(dst, '=')
		addr, isAddr := parseAddr(value)
		switch {
		case syntax.EqualFold(name, "host") || syntax.EqualFold(name, "proto"):
			dst = append(dst, value...) // they describe the proxy that was asked, not the client
		case isAddr && addr.Is4():
			dst = Shorten(addr).AppendTo(dst)
		case isAddr:
			dst = append(dst, `"[`...)
			dst = Shorten(addr).AppendTo(dst)
			dst = append(dst, `]"`...)
		case isObscured(value):
			dst = append(dst, value...)
		default:
			return dst[:before], false
		}
		rest = syntax.Trim(rest)
		if len(rest) == 0 {
			return dst, true
		}
		switch rest[0] {
		case ';':
			separator = ";"
		case ',':
			separator = ", "
		default:
			return dst[:before], false
		}
		v = rest[1:]
	}
}

// cutForwardedValue cuts a token or a quoted string off the front of v; a quoted string keeps its
// quotes. It refuses a quoted string with an escape, because no valid part of Forwarded needs one.
func cutForwardedValue(v []byte) (value, rest []byte, ok bool) {
	if len(v) > 0 && v[0] == '"' {
		end := bytes.IndexByte(v[1:], '"') + 2
		if end < 2 || bytes.IndexByte(v[:end], '\\') >= 0 {
			return nil, nil, false
		}
		return v[:end], v[end:], true
	}
	end := 0
	for end < len(v) && syntax.IsTokenByte(v[end]) {
		end++
	}
	return v[:end], v[end:], end > 0
}

// isObscured reports whether v, a node of RFC 7239, section 6, replaces an address: "unknown" or an
// identifier that starts with an underscore.
func isObscured(v []byte) bool {
	v = bytes.Trim(v, `"`)
	return syntax.EqualFold(v, "unknown") || len(v) > 1 && v[0] == '_'
}
