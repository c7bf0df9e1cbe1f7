package httpsyntax

import (
	"net/netip"
	"strings"
)

// IsLoopbackHost reports whether host, without a port, is this machine: a loopback address, which may be in brackets, or
// localhost.
func IsLoopbackHost(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return err == nil && ip.Unmap().IsLoopback()
}
