package handshake

import (
	"errors"
	"fmt"
)

const (
	// maxHello bounds the bytes of a ClientHello. A hello with a post-quantum key share and the ticket of
	// a client with a certificate has 2 to 6 KiB.
	maxHello = 24 << 10
	// maxAfterHello bounds the bytes that a client sends between two writes of the server, after its ClientHello: a
	// chain of certificates, a signature and the Finished message.
	maxAfterHello = maxChainBytes + 8<<10
)

// ErrTooLarge is the error of a client that sends too many bytes in a handshake. Its Reason is Invalid.
var ErrTooLarge = errors.New("the client's part of the TLS handshake is too large")

// ClientBytes counts and bounds the bytes that a client sends in a TLS handshake.
type ClientBytes struct {
	// HelloEnded says that the client's ClientHello has ended, since the server has written.
	HelloEnded       bool
	sinceServerWrote int // bytes that the client has sent since the server last wrote, or since the start
}

// LimitRead returns the beginning of b that the next read may fill. It returns ErrTooLarge if the client has already
// sent as much as it may before the server writes.
func (c *ClientBytes) LimitRead(b []byte) ([]byte, error) {
	what, limit := "ClientHello", maxHello
	if c.HelloEnded {
		what, limit = "part after the ClientHello", maxAfterHello
	}
	if c.sinceServerWrote >= limit {
		return nil, fmt.Errorf("%w: its %s has more than %d bytes", ErrTooLarge, what, limit)
	}
	return b[:min(len(b), limit-c.sinceServerWrote)], nil
}

// CountRead counts n bytes that were read from the client.
func (c *ClientBytes) CountRead(n int) { c.sinceServerWrote += n }

// SinceServerWrote returns how many bytes the client has sent since the server last wrote, or since the start.
func (c *ClientBytes) SinceServerWrote() int { return c.sinceServerWrote }

// ServerWrote must be called when the server writes to the client during the handshake.
func (c *ClientBytes) ServerWrote() { c.HelloEnded, c.sinceServerWrote = true, 0 }
