package pool

import (
	"context"
	"net/netip"
	"time"

	"adbuffer/internal/upstream"
)

// Address is an IP address and port of an endpoint.
type Address struct {
	// Host is the endpoint as the Host field of requests names it: host[:port].
	Host     string
	AddrPort netip.AddrPort
}

// String returns "host (ip:port)".
func (a Address) String() string { return a.Host + " (" + a.AddrPort.String() + ")" }

// Dialed is a new connection, and how long its parts took.
type Dialed struct {
	Conn     upstream.Conn
	TCP, TLS time.Duration // TLS is 0 on cleartext
}

// Dialer finds an SSP and connects to it. Its methods are safe for concurrent use and return soon
// after ctx ends. Their errors are *upstream.Error with Progress NotSent.
type Dialer interface {
	// Addresses returns the addresses of all endpoints, in an order in which taking turns
	// spreads the load. It is fast if it was called a short time ago, and otherwise bounds its
	// own time. The slice must not be changed.
	Addresses(ctx context.Context) ([]Address, error)
	// Dial connects to addr. It offers HTTP/2 only if offerHTTP2; Dialed.Conn.Protocol is what
	// was negotiated. owner is told about the connection's places, perhaps before Dial returns.
	// ctx ends when the time for a dial is over. Dialed.TCP and TLS are set even if Dial fails.
	Dial(ctx context.Context, addr Address, offerHTTP2 bool, owner upstream.Owner) (Dialed, error)
}
