package socket

import (
	"io"
	"net"
	"syscall"
)

// State is what Peek found.
type State uint8

const (
	// Quiet: the socket is open and nothing has come.
	Quiet State = iota
	// Readable: unread bytes have arrived, or a TLS record has been read in part.
	Readable
	// Ended: the peer has closed, or the socket has failed or is closed.
	Ended
)

// Peek looks at the socket without blocking and without taking a byte away.
// It must not run at the same time as a Read.
//
// It costs one system call. The call does not inform the Go scheduler, since it cannot block: it
// takes 465 ns. RawConn.Read with syscall.Recvfrom takes 526 ns (BenchmarkPeek). Deadlines do not
// affect it.
func (c *Conn) Peek() State {
	if c.MidRecord() {
		return Readable
	}
	return c.PeekSocket()
}

// PeekSocket is Peek without what has been read ahead for TLS. It may run
// beside a Read that waits, but not beside another look or a read that does not
// block.
func (c *Conn) PeekSocket() State {
	if c.raw == nil {
		return Quiet
	}
	c.buf, c.flags = c.one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT
	err := c.raw.Control(c.control)
	c.buf = nil
	switch {
	case err != nil: // closed on our side
		return Ended
	case c.errno == syscall.EAGAIN || c.errno == syscall.EINTR:
		return Quiet
	case c.errno != 0 || c.n == 0:
		return Ended
	default:
		return Readable
	}
}

// readNow reads what is there, or returns errWouldBlock.
func (c *Conn) readNow(p []byte) (int, error) {
	if c.raw == nil {
		return 0, errWouldBlock
	}
	c.buf, c.flags = p, syscall.MSG_DONTWAIT
	err := c.raw.Control(c.control)
	c.buf = nil
	switch {
	case err != nil:
		return 0, net.ErrClosed
	case c.errno == syscall.EAGAIN || c.errno == syscall.EINTR:
		return 0, errWouldBlock
	case c.errno != 0:
		return 0, c.errno
	case c.n == 0 && len(p) > 0:
		return 0, io.EOF
	default:
		return c.n, nil
	}
}
