package dial

import (
	"fmt"
	"net/netip"
	"sync/atomic"
)

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
		f := s.family(a)
		f.list = append(f.list, a)
	}
	return s
}

// canReach reports whether a connection to the address is possible, which it is not if all source_addresses are of
// the other IP family.
func (s *sources) canReach(to netip.Addr) bool {
	return len(s.v4.list) == 0 && len(s.v6.list) == 0 || len(s.family(to).list) > 0
}

func (s *sources) family(to netip.Addr) *family {
	if to.Is4() {
		return &s.v4
	}
	return &s.v6
}

// next returns the source address of the next connection to an address; the zero AddrPort means
// that the system chooses.
func (s *sources) next(to netip.Addr) (netip.AddrPort, error) {
	switch f := s.family(to); {
	case len(f.list) > 0:
		return netip.AddrPortFrom(f.list[int(f.used.Add(1)-1)%len(f.list)], 0), nil
	case s.canReach(to):
		return netip.AddrPort{}, nil
	default:
		return netip.AddrPort{}, fmt.Errorf("no source address matches the IP family of %s; see source_addresses", to)
	}
}
