package httpheader

import "net/netip"

// Identity is whose request it is: the client's address, found once per request, and the addresses between it
// and us. The zero value knows nothing and trusts nobody.
type Identity struct {
	client  netip.Addr
	trusted bool
}

// Resolve finds the client behind peer, the other end of the connection that f came on; the zero Addr is a
// Unix socket. peerTrusted says whether peer's identity fields are believed, trusted whose X-Forwarded-For
// entries are walked past, truncate that addresses lose their last bits (/24, /56) before they leave.
func (id *Identity) Resolve(f *RequestFields, peer netip.Addr, peerTrusted bool, trusted []netip.Prefix, truncate bool) {
}

// Client returns the client's address as it may leave: truncated if Resolve was told so. It is the zero Addr
// if the client is unknown, as behind a Unix socket without X-Forwarded-For.
func (id *Identity) Client() netip.Addr { return id.client }

// Trusted says whether addr, or the IPv4 address mapped in it, is in one of the prefixes.
func Trusted(addr netip.Addr, prefixes []netip.Prefix) bool { return false }
