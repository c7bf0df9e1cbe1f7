package handshake

import (
	"errors"
	"fmt"
)

const (
	// maxHello bounds the bytes of a ClientHello. A hello with a post-quantum key share and the ticket of
	// a client with a certificate has 2 to 6 KiB.
	maxHello = 24 << 10
	// maxReply bounds the bytes of a client's later part of a handshake: a chain of certificates, a
	// signature and the end of the handshake.
	maxReply = maxChainBytes + 8<<10
)

// ErrTooLarge is the error of a client whose part of a handshake is too large. Its Reason is Invalid.
var ErrTooLarge = errors.New("the client's part of the TLS handshake is too large")

// ClientBytes counts the bytes that a client sends in a TLS handshake, and bounds them.
type ClientBytes struct {
	// Replied means that the server has written a part of the handshake: the ClientHello is over.
	Replied bool
	part    int // bytes since the server's last part
}

// Room returns the part of b that may be read into next. It fails with ErrTooLarge if the client has sent
// as much as it may before the server writes.
func (c *ClientBytes) Room(b []byte) ([]byte, error) {
	what, limit := "ClientHello", maxHello
	if c.Replied {
		what, limit = "part behind its ClientHello", maxReply
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

// Wrote notes that the server has written a part of the handshake.
func (c *ClientBytes) Wrote() { c.Replied, c.part = true, 0 }
