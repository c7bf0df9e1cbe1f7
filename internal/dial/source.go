package dial

import (
	"fmt"
	"net/netip"
	"sync/atomic"
)

// sources are the local addresses of connections, used in turn. If empty, the system chooses one.
type sources struct {
	v4, v6   []netip.Addr
	at4, at6 atomic.Uint32
}

func newSources(all []netip.Addr) *sources {
	s := new(sources)
	for _, a := range all {
		if a = a.Unmap(); a.Is4() {
			s.v4 = append(s.v4, a)
		} else {
			s.v6 = append(s.v6, a)
		}
	}
	return s
}

// serve reports whether a connection to the address is possible. It is not if all source_addresses
// are of the other family.
func (s *sources) serve(to netip.Addr) bool {
	return len(s.v4) == 0 && len(s.v6) == 0 || len(s.of(to)) > 0
}

func (s *sources) of(to netip.Addr) []netip.Addr {
	if to.Is4() {
		return s.v4
	}
	return s.v6
}

// next returns the source address of the next connection to an address; the zero AddrPort means
// that the system chooses.
func (s *sources) next(to netip.Addr) (netip.AddrPort, error) {
	list, at := s.of(to), &s.at6
	if to.Is4() {
		at = &s.at4
	}
	switch {
	case len(list) > 0:
		return netip.AddrPortFrom(list[int(at.Add(1)-1)%len(list)], 0), nil
	case s.serve(to):
		return netip.AddrPort{}, nil
	default:
		return netip.AddrPort{}, fmt.Errorf("none of source_addresses is of the family of %s", to)
	}
}
