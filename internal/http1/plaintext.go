package http1

import (
	"net"

	"adbuffer/internal/socket"
)

// plaintext reads from a TLS connection, and remembers whether bytes may be
// left that TLS has decrypted already. Those are neither in our own buffer nor
// in the socket, where we look for what came behind an answer.
type plaintext struct {
	from net.Conn
	full bool // the last Read had no room for more than it returned
}

func (p *plaintext) Read(b []byte) (int, error) {
	n, err := p.from.Read(b)
	p.full = n == len(b)
	return n, err
}

// peek looks, without blocking, for anything that the peer has sent but
// session tickets and key updates, which TLS takes in. It may take a byte away:
// after Readable the connection cannot be used any more. A record of which only
// a part has come may be anything, and counts as Readable.
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
