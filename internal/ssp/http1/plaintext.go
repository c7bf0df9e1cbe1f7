package http1

import (
	"net"

	"adbuffer/internal/wire/socket"
)

// plaintext reads from a TLS connection, and records whether crypto/tls may hold decrypted bytes, which are neither
// in the read buffer nor in the socket.
type plaintext struct {
	from         net.Conn
	mayHoldBytes bool // the last Read filled its buffer
}

func (p *plaintext) Read(b []byte) (int, error) {
	n, err := p.from.Read(b)
	p.mayHoldBytes = n == len(b)
	return n, err
}

// peek checks, without blocking, for bytes other than session tickets and key updates, which TLS
// consumes. It may consume a byte: after Readable the connection must be closed. An incomplete
// record counts as Readable, since it may hold anything.
func (p *plaintext) peek(sock *socket.Conn) socket.State {
	var one [1]byte
	sock.SetNonblocking(true)
	n, err := p.Read(one[:])
	sock.SetNonblocking(false)
	switch {
	case n > 0:
		return socket.Readable
	case !socket.WouldBlock(err):
		return socket.Ended
	case sock.MidRecord():
		return socket.Readable
	default:
		return socket.Quiet
	}
}
