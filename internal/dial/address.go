package dial

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"net/netip"
	"slices"
	"sync/atomic"

	"adbuffer/internal/upstream"
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
func takeTurns(endpoints []upstream.Endpoint, ips func(upstream.Endpoint) []netip.Addr) []upstream.Address {
	rounds := 0
	for _, e := range endpoints {
		rounds = max(rounds, len(ips(e)))
	}
	var all []upstream.Address
	for i := range rounds {
		for _, e := range endpoints {
			if ips := ips(e); len(ips) > 0 {
				all = append(all, upstream.Address{Endpoint: e, AddrPort: netip.AddrPortFrom(ips[i%len(ips)], e.Port)})
			}
		}
	}
	return all
}

// sources are the local addresses of connections, used in turn. If empty, the system chooses one.
type sources struct{ v4, v6 family }

// family holds the local addresses of IPv4 or of IPv6.
type family struct {
	list []netip.Addr
	used atomic.Uint32 // connections so far
}

func newSources(all []netip.Addr) *sources {
	s := new(sources)
	for _, a := range all {
		a = a.Unmap()
		f := s.of(a)
		f.list = append(f.list, a)
	}
	return s
}

// serve reports whether a connection to the address is possible. It is not if all source_addresses
// are of the other family.
func (s *sources) serve(to netip.Addr) bool {
	return len(s.v4.list) == 0 && len(s.v6.list) == 0 || len(s.of(to).list) > 0
}

func (s *sources) of(to netip.Addr) *family {
	if to.Is4() {
		return &s.v4
	}
	return &s.v6
}

// next returns the source address of the next connection to an address; the zero AddrPort means
// that the system chooses.
func (s *sources) next(to netip.Addr) (netip.AddrPort, error) {
	switch f := s.of(to); {
	case len(f.list) > 0:
		return netip.AddrPortFrom(f.list[int(f.used.Add(1)-1)%len(f.list)], 0), nil
	case s.serve(to):
		return netip.AddrPort{}, nil
	default:
		return netip.AddrPort{}, fmt.Errorf("none of source_addresses is of the family of %s", to)
	}
}
