package http2

import (
	"crypto/tls"
	"net"
	"syscall"

	"adbuffer/internal/socket"
)

// room knows how much can be written without waiting.
//
// Callers and the reader write to the socket themselves, which is cheaper than
// to wake a writer; but neither may be held up by a peer that does not read: a
// caller has a deadline, and a reader that waits for a peer that waits for the
// reader waits for ever. A write waits only when the socket's send buffer is
// full. Of what we have written, all that came before a request has left that
// buffer once the peer answers the request: so the rest is known without
// asking the kernel. What may not fit is left to a goroutine that may wait.
//
// All figures are costs: bytes, and writeOverhead for each write.
type sendBuffer struct {
	size   uint64 // what the send buffer surely takes; 0 where that is not known
	spent  uint64 // of all writes begun
	proven uint64 // of those that the peer has read
}

// writeOverhead is more than the kernel accounts for a write beside its bytes,
// TLS record headers included.
const writeOverhead = 2048

func cost(n int) uint64 { return uint64(n) + writeOverhead }

// has reports whether n bytes can be written without waiting.
func (r *sendBuffer) fits(n int) bool { return r.spent-r.proven+cost(n) <= r.size }

// prove notes that the peer has read all writes that had begun when spent was
// so much.
func (r *sendBuffer) prove(spent uint64) { r.proven = max(r.proven, spent) }

// newRoom asks for the size of the send buffer. Only memory pressure ever makes
// that smaller, and half of it is left alone.
func newSendBuffer(conn net.Conn) sendBuffer {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return sendBuffer{}
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return sendBuffer{}
	}
	size := 0
	_ = raw.Control(func(fd uintptr) {
		if size, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF); err != nil {
			size = 0
		}
	})
	return sendBuffer{size: uint64(max(size, 0)) / 2}
}

// bottom returns the connection that conn stands on, below TLS and wrappers.
func bottom(conn net.Conn) net.Conn {
	for {
		switch c := conn.(type) {
		case *tls.Conn:
			conn = c.NetConn()
		case *socket.Conn:
			conn = c.Conn
		default:
			return conn
		}
	}
}
