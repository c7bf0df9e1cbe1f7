package http2

import (
	"crypto/tls"
	"net"
	"syscall"

	"adbuffer/internal/socket"
)

// sendBuffer computes how many bytes can be written to the socket without blocking.
//
// Callers and the reader write to the socket themselves, which is cheaper than a wake-up of a
// writer goroutine. A peer that does not read must not block them. A caller has a deadline, and a
// blocked reader could mean a deadlock of both peers.
//
// A write blocks only if the socket's send buffer is full. When the peer responds to a request, all
// bytes written before that request have left the buffer. So the free part is known without a
// system call. A write that may not fit is done by a goroutine that may block.
//
// All figures are costs: bytes, and writeOverhead for each write.
type sendBuffer struct {
	size   uint64 // a lower bound of the send buffer; 0 if unknown
	spent  uint64 // cost of all writes begun
	proven uint64 // cost of the writes that the peer has read
}

// writeOverhead is an upper bound of the kernel's extra cost of a write, TLS record headers
// included.
const writeOverhead = 2048

func cost(n int) uint64 { return uint64(n) + writeOverhead }

// fits reports whether n bytes can be written without waiting.
func (r *sendBuffer) fits(n int) bool { return r.spent-r.proven+cost(n) <= r.size }

// prove records that the peer has read all writes that had begun when spent had this value.
func (r *sendBuffer) prove(spent uint64) { r.proven = max(r.proven, spent) }

// newSendBuffer asks the kernel for the size of the send buffer and uses half of it. Only memory
// pressure makes the buffer smaller.
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

// bottom returns the connection below TLS and wrappers.
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
