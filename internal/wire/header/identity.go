package header

import (
	"net/netip"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/wire/syntax"
)

// maxHops is how many addresses of X-Forwarded-For are read, from the right, and forwarded. It
// bounds the work that a request can cause; real chains have fewer than ten.
const maxHops = 32

// Identity is the client's identity. It is resolved once per request and then only read, by any number of legs. The
// zero Identity has no address, and no trusted peer.
//
// X-Forwarded-For of a trusted peer is read as one list over all its lines. Ports, brackets and
// empty elements are accepted. The list ends at anything else that is not an address: elements to
// the left of it are neither trusted nor forwarded.
type Identity struct {
	hops  [maxHops]netip.Addr // hops[maxHops-nHops:] is the outgoing X-Forwarded-For, the most distant address first
	nHops int

	client netip.Addr // the client's address; the zero Addr if unknown
	device netip.Addr // X-Device-IP of a trusted peer, or the zero Addr
	agent  []byte     // X-Device-User-Agent of a trusted peer, else User-Agent, or nil

	trusted  bool // the peer's identity fields are used
	truncate bool // addresses are shortened before they are sent
}

// Resolve finds the client behind peer, the other end of the connection on which f arrived. The
// zero Addr means a Unix socket. If peerTrusted is true, the peer's identity fields are used.
// trusted lists the proxies to skip in X-Forwarded-For. If truncate is true, only /24 and /56 of
// addresses are sent.
//
// The client is the first address from the right that is not trusted, or the leftmost address if all are trusted. If
// the peer is not trusted or sent no X-Forwarded-For, the client is the peer.
func (id *Identity) Resolve(f *RequestFields, peer netip.Addr, peerTrusted bool, trusted []netip.Prefix, truncate bool) {
	peer = peer.Unmap()
	if peer.Zone() != "" {
		peer = peer.WithZone("")
	}
	id.nHops = 0
	id.client, id.device, id.agent = peer, netip.Addr{}, f.userAgent
	id.trusted, id.truncate = peerTrusted, truncate
	id.addHop(peer)
	if peerTrusted && f.hasForwardedFor {
		id.walkForwardedFor(f, trusted)
	}
	if peerTrusted && f.hasDeviceFields {
		id.readDevice(f)
	}
}

// Reset makes id the zero Identity, except for hops, which hold no pointers to a request.
func (id *Identity) Reset() {
	id.nHops = 0
	id.client, id.device, id.agent = netip.Addr{}, netip.Addr{}, nil
	id.trusted, id.truncate = false, false
}

// CopyFrom copies from into id. f must be a copy of the fields from which from was resolved; id then refers only to
// the bytes of f.
func (id *Identity) CopyFrom(from *Identity, f *RequestFields) {
	*id = *from
	id.agent = f.userAgent
	if id.trusted && f.hasDeviceFields {
		id.readDevice(f)
	}
}

// addHop inserts an address at the front of the list. It skips loopback addresses, which mean
// nothing outside the machine.
func (id *Identity) addHop(addr netip.Addr) {
	if addr.IsValid() && !addr.IsLoopback() && id.nHops < maxHops {
		id.nHops++
		id.hops[maxHops-id.nHops] = addr
	}
}

// walkForwardedFor reads X-Forwarded-For from the right.
func (id *Identity) walkForwardedFor(f *RequestFields, trusted []netip.Prefix) {
	allTrusted := true // every hop so far was trusted
	seen := 0
	for i := len(f.fields) - 1; i >= 0; i-- {
		if f.fields[i].id != nameForwardedFor {
			continue
		}
		list := f.fields[i].Value
		for end := len(list); end >= 0; {
			start := end
			for start > 0 && list[start-1] != ',' {
				start--
			}
			element := syntax.Trim(list[start:end])
			end = start - 1
			if len(element) == 0 {
				continue
			}
			addr, ok := parseAddr(element)
			seen++
			if !ok || seen > maxHops {
				return
			}
			id.addHop(addr)
			if allTrusted {
				id.client = addr
				allTrusted = Trusted(addr, trusted)
			}
		}
	}
}

// readDevice reads a trusted peer's fields about the device. If X-Device-IP occurs twice, a
// careless proxy may have forwarded the client's, so readDevice ignores both.
func (id *Identity) readDevice(f *RequestFields) {
	addresses, agents := 0, 0
	for i := range f.fields {
		field := &f.fields[i]
		switch field.id {
		case nameDeviceIP:
			addr, ok := parseAddr(field.Value)
			addresses++
			if addresses > 1 || !ok || addr.IsLoopback() {
				addr = netip.Addr{}
			}
			id.device = addr
		case nameDeviceUserAgent:
			agents++
			if agents == 1 && len(field.Value) > 0 {
				id.agent = field.Value
			}
		}
	}
}

// Client returns the client's address as it may be sent: shortened if Resolve was asked to shorten
// it. It is the zero Addr if the address is unknown, for example behind a Unix socket without
// X-Forwarded-For.
func (id *Identity) Client() netip.Addr { return id.outgoing(id.client) }

// Group returns the group of clients that the client belongs to.
func (id *Identity) Group() rates.Group { return rates.GroupOf(id.client) }

// Hash returns a hash of the client's address.
func (id *Identity) Hash() uint64 { return rates.Hash(id.client) }

// outgoing returns addr as it may be sent.
func (id *Identity) outgoing(addr netip.Addr) netip.Addr {
	if id.truncate {
		return Shorten(addr)
	}
	return addr
}

// appendForwardedFor appends the X-Forwarded-For line, or nothing without an address to send.
func (id *Identity) appendForwardedFor(dst []byte) []byte {
	hops := id.hops[maxHops-id.nHops:]
	if len(hops) == 0 {
		return dst
	}
	dst = append(dst, "X-Forwarded-For: "...)
	for i, hop := range hops {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = id.outgoing(hop).AppendTo(dst)
	}
	return append(dst, "\r\n"...)
}

// appendDeviceIP appends the X-Device-IP line: the trusted peer's value, else the client's address.
// A loopback address is never a device's and is not sent.
func (id *Identity) appendDeviceIP(dst []byte) []byte {
	addr := id.device
	if !addr.IsValid() {
		addr = id.client
	}
	if !addr.IsValid() || addr.IsLoopback() {
		return dst
	}
	dst = append(dst, "X-Device-IP: "...)
	dst = id.outgoing(addr).AppendTo(dst)
	return append(dst, "\r\n"...)
}

// appendDeviceUserAgent appends the X-Device-User-Agent line, or nothing if the client sent no
// agent.
func (id *Identity) appendDeviceUserAgent(dst []byte) []byte {
	if len(id.agent) == 0 {
		return dst
	}
	dst = append(dst, "X-Device-User-Agent: "...)
	dst = append(dst, id.agent...)
	return append(dst, "\r\n"...)
}

// Trusted reports whether addr, or the IPv4 address mapped in it, is in one of the prefixes.
func Trusted(addr netip.Addr, prefixes []netip.Prefix) bool {
	addr = addr.Unmap()
	for _, p := range prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}
