package dial

import (
	"cmp"
	"hash/maphash"
	"net/netip"
	"slices"
)

// Addr is one place to connect to.
type Addr struct {
	// Host is the endpoint's host, for TLS and messages.
	Host string
	// AddrPort is the IP address and port.
	AddrPort netip.AddrPort
}

// String returns "host (ip:port)".
func (a Addr) String() string { return a.Host + " (" + a.AddrPort.String() + ")" }

// refused returns what kind of address ip is ("a link-local") if it is one that
// no SSP can have, and "" for all other addresses. A DNS server must not turn adbuffer into
// a client of its machine's metadata service (169.254.169.254, or fe80:: on the link).
// Loopback and private ranges are allowed: sidecars and SSPs in the cluster use them.
func refused(ip netip.Addr) string {
	ip = ip.Unmap()
	switch {
	case !ip.IsValid():
		return "an invalid"
	case ip.IsUnspecified():
		return "an unspecified"
	case ip.IsLinkLocalUnicast():
		return "a link-local"
	case ip.IsMulticast():
		return "a multicast"
	case ip == broadcast:
		return "a broadcast"
	case nat64.Contains(ip): // a translator would connect to the IPv4 address inside
		b := ip.As16()
		return refused(netip.AddrFrom4([4]byte(b[12:])))
	}
	return ""
}

var (
	broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})
	nat64     = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052, section 2.1
)

// arrange puts the addresses of one name into dialling order, with IPv4 and IPv6 alternating. It
// keeps the first limit of them.
//
// The order depends only on seed and on the set of addresses. So a result that a name server only
// rotated changes nothing, and processes with other seeds begin with other addresses.
func arrange(ips []netip.Addr, seed maphash.Seed, limit int) []netip.Addr {
	hash := func(ip netip.Addr) uint64 { b := ip.As16(); return maphash.Bytes(seed, b[:]) }
	ips = slices.Clone(ips)
	slices.SortFunc(ips, func(a, b netip.Addr) int {
		return cmp.Or(cmp.Compare(hash(a), hash(b)), a.Compare(b))
	})
	ips = slices.Compact(ips)
	var families [2][]netip.Addr
	for _, ip := range ips {
		if ip.Is4() {
			families[0] = append(families[0], ip)
		} else {
			families[1] = append(families[1], ip)
		}
	}
	ips = ips[:0]
	for i := range max(len(families[0]), len(families[1])) {
		for _, f := range families {
			if i < len(f) {
				ips = append(ips, f[i])
			}
		}
	}
	return ips[:min(len(ips), limit)]
}

// takeTurns merges the addresses of all endpoints in rounds: each round has one address of each
// endpoint. The endpoint with the most addresses sets the number of rounds; the addresses of other
// endpoints repeat. So every endpoint gets the same share of the dials.
func takeTurns(endpoints []Endpoint, ips func(Endpoint) []netip.Addr) []Addr {
	rounds := 0
	for _, e := range endpoints {
		rounds = max(rounds, len(ips(e)))
	}
	var all []Addr
	for i := range rounds {
		for _, e := range endpoints {
			if ips := ips(e); len(ips) > 0 {
				all = append(all, Addr{Host: e.Host, AddrPort: netip.AddrPortFrom(ips[i%len(ips)], e.Port)})
			}
		}
	}
	return all
}
