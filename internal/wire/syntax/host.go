package syntax

import (
	"net/netip"
	"strings"
)

// IsLoopbackHost reports whether host, which has no port, names this machine: localhost, or a loopback address, which
// may be in brackets.
func IsLoopbackHost(host string) bool {
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return err == nil && ip.Unmap().IsLoopback()
}

// IsHost reports whether host is an IP address without a zone, or a DNS name
// in ASCII (underscores too, as container networks use them).
func IsHost(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Zone() == ""
	}
	if host == "" || len(host) > 253 {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(host, "."), ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			switch c := label[i]; {
			case IsDigit(c), 'a' <= c|0x20 && c|0x20 <= 'z', c == '-', c == '_':
			default:
				return false
			}
		}
	}
	return true
}
