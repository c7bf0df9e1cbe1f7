package header

import (
	"bytes"
	"net/netip"
	"unsafe"

	"adbuffer/internal/wire/syntax"
)

// parseAddr parses one address in the forms of proxies: 192.0.2.1, 192.0.2.1:8080, 2001:db8::1, [2001:db8::1],
// [2001:db8::1]:8080, with or without quotes. It returns an IPv4-mapped address as IPv4. It refuses addresses with a
// zone, which means nothing on another machine.
func parseAddr(b []byte) (addr netip.Addr, ok bool) {
	b = syntax.Trim(b)
	if len(b) >= 2 && b[0] == '"' && b[len(b)-1] == '"' {
		b = b[1 : len(b)-1]
	}
	if len(b) == 0 {
		return netip.Addr{}, false
	}
	if b[0] == '[' {
		end := bytes.IndexByte(b, ']')
		if end < 0 || !isPort(b[end+1:]) {
			return netip.Addr{}, false
		}
		addr, ok = ParseAddress(b[1:end])
		return addr, ok && bytes.IndexByte(b[:end], ':') > 0
	}
	colon := bytes.IndexByte(b, ':')
	switch {
	case colon < 0, bytes.IndexByte(b[colon+1:], ':') >= 0:
		return ParseAddress(b)
	case !isPort(b[colon:]):
		return netip.Addr{}, false
	}
	return ParseAddress(b[:colon])
}

// isPort reports whether b is empty, or a colon and a decimal number of up to five digits.
func isPort(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	if b[0] != ':' || len(b) > 6 {
		return false
	}
	_, ok := syntax.ParseNumber(b[1:], syntax.MaxNumber)
	return ok
}

// ParseAddress parses one address without a port. It returns an IPv4-mapped address as IPv4, and refuses addresses
// with a zone.
func ParseAddress(b []byte) (addr netip.Addr, ok bool) {
	const shortest, longest = len("0.0.0.0"), len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")
	colons := 0
	for _, c := range b[:min(len(b), longest)] {
		switch {
		case c == '.', c-'0' < 10:
		case c == ':':
			colons++
		case syntax.HexDigit(c) < 0:
			return netip.Addr{}, false
		}
	}
	// ParseAddr allocates its errors, so most texts that are not an address are refused without calling it.
	if len(b) > longest || colons < 2 && len(b) < shortest {
		return netip.Addr{}, false
	}
	// Without a zone, the result of ParseAddr refers to no part of the string, so b may be reused.
	addr, err := netip.ParseAddr(unsafe.String(unsafe.SliceData(b), len(b)))
	return addr.Unmap(), err == nil
}

// Shorten returns a with its last bits cleared. The remaining /24 of IPv4, or /56 of IPv6, identifies a network but
// not a person.
func Shorten(a netip.Addr) netip.Addr {
	if !a.IsValid() {
		return a
	}
	keep := 56
	if a.Is4() {
		keep = 24
	}
	p, err := a.Prefix(keep)
	if err != nil {
		panic("BUG: prefix of a valid address: " + err.Error())
	}
	return p.Addr()
}
