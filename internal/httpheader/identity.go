package httpheader

import (
	"net/netip"

	"adbuffer/internal/httpsyntax"
)

// maxHops is how many addresses of X-Forwarded-For are looked at, from the right, and sent on. It bounds the
// work that a request can ask for; real chains have fewer than ten.
const maxHops = 32

// Identity is whose request it is. It is found once per request and then only read, by any number of legs.
// The zero value knows nothing and trusts nobody.
//
// From a trusted peer X-Forwarded-For is read as one list over all its lines. Ports, brackets and empty
// elements are tolerated; at anything else that is no address the list ends, so that what lies left of it is
// neither believed nor sent on.
type Identity struct {
	hops  [maxHops]netip.Addr // the last nHops: what X-Forwarded-For holds when it leaves, the farthest first
	nHops int

	client netip.Addr // where the walk past trusted hops ended; the zero Addr if there was none
	device netip.Addr // X-Device-IP of a trusted peer; the zero Addr if there is none
	agent  []byte     // X-Device-User-Agent of a trusted peer, else User-Agent; nil if there is none

	trusted  bool // the peer's identity fields are believed
	truncate bool // addresses are shortened before they leave
}

// Resolve finds the client behind peer, the other end of the connection that f came on; the zero Addr stands
// for a Unix socket. peerTrusted says whether the peer's identity fields are believed, trusted which addresses
// in X-Forwarded-For are proxies to be walked past, truncate that addresses keep only /24 and /56 when they leave.
//
// The client is the first address from the right that is not trusted, or the leftmost one if all are. It is
// the peer where the peer is not trusted or sent no X-Forwarded-For.
func (id *Identity) Resolve(f *RequestFields, peer netip.Addr, peerTrusted bool, trusted []netip.Prefix, truncate bool) {
	peer = peer.Unmap()
	if peer.Zone() != "" {
		peer = peer.WithZone("")
	}
	id.nHops = 0
	id.client, id.device, id.agent = peer, netip.Addr{}, f.userAgent
	id.trusted, id.truncate = peerTrusted, truncate
	id.addHop(peer)
	if peerTrusted && f.lists {
		id.walk(f, trusted)
	}
	if peerTrusted && f.devices {
		id.readDevice(f)
	}
}

// Reset forgets the last request, so that nothing here keeps its bytes in memory. Resolve needs no Reset before it.
func (id *Identity) Reset() {
	id.nHops = 0
	id.client, id.device, id.agent = netip.Addr{}, netip.Addr{}, nil
	id.trusted, id.truncate = false, false
}

// addHop puts an address in front of the list. Loopback says nothing outside the machine and is left out.
func (id *Identity) addHop(addr netip.Addr) {
	if addr.IsValid() && !addr.IsLoopback() && id.nHops < maxHops {
		id.nHops++
		id.hops[maxHops-id.nHops] = addr
	}
}

// hopList returns the addresses of the outgoing X-Forwarded-For, the farthest first.
func (id *Identity) hopList() []netip.Addr { return id.hops[maxHops-id.nHops:] }

// walk reads X-Forwarded-For from the right.
func (id *Identity) walk(f *RequestFields, trusted []netip.Prefix) {
	passing := true // every hop so far was trusted
	seen := 0
	for i := len(f.fields) - 1; i >= 0; i-- {
		if f.fields[i].kind != forwardedFor {
			continue
		}
		list := f.fields[i].Value
		for end := len(list); end >= 0; {
			start := end
			for start > 0 && list[start-1] != ',' {
				start--
			}
			element := httpsyntax.Trim(list[start:end])
			end = start - 1
			if len(element) == 0 {
				continue
			}
			addr, ok := parseAddr(element)
			if seen++; !ok || seen > maxHops {
				return
			}
			id.addHop(addr)
			if passing {
				id.client = addr
				passing = Trusted(addr, trusted)
			}
		}
	}
}

// readDevice takes what a trusted peer says about the device. Of two X-Device-IP a careless proxy may have let
// one through from the client, so they count as none.
func (id *Identity) readDevice(f *RequestFields) {
	addresses, agents := 0, 0
	for i := range f.fields {
		field := &f.fields[i]
		switch field.kind {
		case deviceIP:
			addr, ok := parseAddr(field.Value)
			if addresses++; addresses > 1 || !ok || addr.IsLoopback() {
				addr = netip.Addr{}
			}
			id.device = addr
		case deviceUserAgent:
			if agents++; agents == 1 && len(field.Value) > 0 {
				id.agent = field.Value
			}
		}
	}
}

// Client returns the client's address as it may leave: shortened if Resolve was told so. It is the zero Addr
// if nothing is known, as behind a Unix socket without X-Forwarded-For.
func (id *Identity) Client() netip.Addr { return id.leaving(id.client) }

// leaving returns addr as it may leave the proxy.
func (id *Identity) leaving(addr netip.Addr) netip.Addr {
	if id.truncate {
		return Shorten(addr)
	}
	return addr
}

// appendForwardedFor appends the X-Forwarded-For line, or nothing if there is no address to send.
func (id *Identity) appendForwardedFor(dst []byte) []byte {
	hops := id.hopList()
	if len(hops) == 0 {
		return dst
	}
	dst = append(dst, "X-Forwarded-For: "...)
	for i, hop := range hops {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = id.leaving(hop).AppendTo(dst)
	}
	return append(dst, "\r\n"...)
}

// appendDeviceIP appends the X-Device-IP line: what a trusted peer says it is, else the client's address. A
// loopback address is no device's and is not sent.
func (id *Identity) appendDeviceIP(dst []byte) []byte {
	addr := id.device
	if !addr.IsValid() {
		addr = id.client
	}
	if !addr.IsValid() || addr.IsLoopback() {
		return dst
	}
	dst = append(dst, "X-Device-IP: "...)
	dst = id.leaving(addr).AppendTo(dst)
	return append(dst, "\r\n"...)
}

// appendDeviceUserAgent appends the X-Device-User-Agent line, or nothing if the client named no agent.
func (id *Identity) appendDeviceUserAgent(dst []byte) []byte {
	if len(id.agent) == 0 {
		return dst
	}
	dst = append(dst, "X-Device-User-Agent: "...)
	dst = append(dst, id.agent...)
	return append(dst, "\r\n"...)
}

// Trusted says whether addr, or the IPv4 address mapped in it, is in one of the prefixes.
func Trusted(addr netip.Addr, prefixes []netip.Prefix) bool {
	addr = addr.Unmap()
	for _, p := range prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}
