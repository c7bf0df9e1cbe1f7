package dial

import (
	"cmp"
	"hash/maphash"
	"net/netip"
	"slices"
)

// arrange returns the addresses of one name in dialling order, in which IPv4 and IPv6 alternate. It returns at most
// the first limit addresses.
//
// The order depends only on seed and on the set of addresses. So it stays the same if a name server rotates its
// response, and processes with different seeds start with different addresses.
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
