package handshake

import (
	"errors"
	"fmt"
)

const (
	// maxHello bounds the bytes of a ClientHello. A hello with a post-quantum key share and the ticket of
	// a client with a certificate has 2 to 6 KiB.
	maxHello = 24 << 10
	// maxReply bounds the bytes that a client sends after the server's part of the handshake: a chain of
	// certificates, a signature and the Finished message.
	maxReply = maxChainBytes + 8<<10
)

// ErrTooLarge is the error of a client whose part of a handshake is too large. Its Reason is Invalid.
var ErrTooLarge = errors.New("the client's part of the TLS handshake is too large")

// ClientBytes counts the bytes that a client sends in a TLS handshake, and bounds them.
type ClientBytes struct {
	// Replied means that the server has written a part of the handshake, so that the client's ClientHello has ended.
	Replied bool
	part    int // bytes since the server last wrote
}

// Room returns the part of b into which the next read may put bytes. It returns ErrTooLarge if the client has already
// sent as much as it may before the server writes.
func (c *ClientBytes) Room(b []byte) ([]byte, error) {
	what, limit := "ClientHello", maxHello
	if c.Replied {
		what, limit = "part after the ClientHello", maxReply
	}
	if c.part >= limit {
		return nil, fmt.Errorf("%w: its %s has more than %d bytes", ErrTooLarge, what, limit)
	}
	return b[:min(len(b), limit-c.part)], nil
}

// Arrived counts n bytes that were read.
func (c *ClientBytes) Arrived(n int) { c.part += n }

// Part returns the bytes that have arrived since the server last wrote.
func (c *ClientBytes) Part() int { return c.part }

// Wrote must be called when the server has written a part of the handshake.
func (c *ClientBytes) Wrote() { c.Replied, c.part = true, 0 }
