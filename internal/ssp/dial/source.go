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
