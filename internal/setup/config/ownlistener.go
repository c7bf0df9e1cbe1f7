package config

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"adbuffer/internal/wire/exchange"
)

// reaches reports whether the endpoint leads to this machine's listener at l. It asks no name server: the
// only names that it knows are localhost, the machine's name and the host of l. No endpoint leads to a
// unix socket.
func (m *machine) reaches(l Address, endpoint exchange.Endpoint) bool {
	network, address := l.Split()
	host, port, err := net.SplitHostPort(address)
	if network == "unix" || err != nil || strings.TrimLeft(port, "0") != strconv.Itoa(int(endpoint.Port)) {
		return false
	}
	if host != "" && sameHost(host, endpoint.Host) {
		return true
	}
	listening := m.lookup(host)
	return slices.ContainsFunc(m.lookup(endpoint.Host), func(to netip.Addr) bool {
		return slices.ContainsFunc(listening, func(at netip.Addr) bool {
			switch {
			case host == "" || at == netip.IPv6Unspecified(): // such a socket accepts IPv4 too
				return m.isLocal(to)
			case at == netip.IPv4Unspecified():
				return to.Is4() && m.isLocal(to)
			}
			return at == to
		})
	})
}

// lookup returns the addresses of a host, or nil if only a name server knows them. The host "" is the
// unspecified address.
func (m *machine) lookup(host string) []netip.Addr {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr.Unmap()}
	}
	loopback := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	switch name := strings.ToLower(strings.TrimSuffix(host, ".")); {
	case name == "":
		return []netip.Addr{netip.IPv6Unspecified()}
	case name == "localhost" || strings.HasSuffix(name, ".localhost"):
		return loopback
	case m.hostname != "" && sameHost(name, m.hostname):
		return append(loopback, m.addrs...)
	}
	return nil
}

func (m *machine) isLocal(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(m.addrs, a) }

// overlap reports whether two listeners would share an address. With reuse_port, the kernel would open
// both and divide the connections between them.
func overlap(a, b Address) bool {
	hostA, portA, errA := net.SplitHostPort(string(a))
	hostB, portB, errB := net.SplitHostPort(string(b))
	port := strings.TrimLeft(portA, "0")
	if errA != nil || errB != nil || port == "" || port != strings.TrimLeft(portB, "0") {
		return false
	}
	everywhere := func(host string) bool {
		addr, _ := netip.ParseAddr(host)
		return host == "" || addr.IsUnspecified()
	}
	var m machine
	return everywhere(hostA) || everywhere(hostB) || sameHost(hostA, hostB) ||
		slices.ContainsFunc(m.lookup(hostA), func(addr netip.Addr) bool { return slices.Contains(m.lookup(hostB), addr) })
}

func sameHost(a, b string) bool {
	return strings.EqualFold(strings.TrimSuffix(a, "."), strings.TrimSuffix(b, "."))
}

// loops warns of endpoints that lead back to this adbuffer.
func (w *warner) loops(cfg *Config, ssp *SSP, path string) {
	for i, u := range ssp.Parsed.All {
		for _, l := range []struct {
			key    string
			at     Address
			result string
		}{
			{"server.listen", cfg.Server.Listen, "its requests would come back, and be refused as a loop"},
			{"admin.listen", cfg.Admin.Listen, "the admin listener serves no ads"},
		} {
			if w.machine.reaches(l.at, u) {
				w.add(at(join(path, "endpoints"), i), "leads to this adbuffer itself, at %s (%s): %s", l.key, l.at, l.result)
				break
			}
		}
	}
}
