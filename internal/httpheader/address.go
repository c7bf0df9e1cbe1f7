package httpheader

import (
	"bytes"
	"net/netip"
	"unsafe"

	"adbuffer/internal/syntax"
)

// parseAddr parses one address in the forms of proxies: 192.0.2.1, 192.0.2.1:8080, 2001:db8::1,
// [2001:db8::1], [2001:db8::1]:8080, with or without quotes. It returns a mapped IPv4 address as
// IPv4. It refuses zones: they mean nothing on another machine.
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
		return parseIPv6(b[1:end])
	}
	colon := bytes.IndexByte(b, ':')
	switch {
	case colon < 0:
		return parseIPv4(b)
	case bytes.IndexByte(b[colon+1:], ':') >= 0:
		return parseIPv6(b)
	case !isPort(b[colon:]):
		return netip.Addr{}, false
	}
	return parseIPv4(b[:colon])
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

// parseIPv4 parses dotted decimals without leading zeros, which some parsers read as octal. For
// bytes that are no address, netip.ParseAddr would allocate an error and take four times as long.
func parseIPv4(b []byte) (addr netip.Addr, ok bool) {
	var a [4]byte
	octet, digits, n := 0, 0, 0
	for _, c := range b {
		switch {
		case syntax.IsDigit(c):
			if digits > 0 && n == 0 {
				return netip.Addr{}, false
			}
			n = n*10 + int(c-'0')
			digits++
			if n > 255 {
				return netip.Addr{}, false
			}
		case c == '.' && digits > 0 && octet < 3:
			a[octet] = byte(n)
			octet++
			digits, n = 0, 0
		default:
			return netip.Addr{}, false
		}
	}
	if octet != 3 || digits == 0 {
		return netip.Addr{}, false
	}
	a[3] = byte(n)
	return netip.AddrFrom4(a), true
}

func parseIPv6(b []byte) (addr netip.Addr, ok bool) {
	const longest = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")
	if len(b) < 2 || len(b) > longest || bytes.IndexByte(b, ':') < 0 || bytes.IndexByte(b, '%') >= 0 {
		return netip.Addr{}, false
	}
	// ParseAddr keeps no part of the string once it has returned, as there is no zone.
	addr, err := netip.ParseAddr(unsafe.String(unsafe.SliceData(b), len(b)))
	return addr.Unmap(), err == nil
}

// ParseAddress parses one address without a port. It returns a mapped IPv4 address as IPv4. It refuses
// zones.
func ParseAddress(b []byte) (addr netip.Addr, ok bool) {
	if bytes.IndexByte(b, ':') < 0 {
		return parseIPv4(b)
	}
	return parseIPv6(b)
}

// Shorten returns a with its last bits cleared: /24 or /56 remain, which identify a network but not
// a person.
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
