package socket

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// State is the result of Peek.
type State uint8

const (
	// Quiet means that the socket is open and no byte has arrived.
	Quiet State = iota
	// Readable means that unread bytes have arrived, or that bytes have been read of a TLS record that TLS has not
	// received whole; see MidRecord.
	Readable
	// Ended means that the peer has closed, or the socket has failed or is closed.
	Ended
)

// Peek returns the state of the socket without blocking and without consuming a byte. It must not
// run at the same time as a Read.
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

// PeekSocket does the same as Peek, but ignores bytes that were read ahead for TLS. It may run
// beside a Read that waits, but not beside another Peek or a nonblocking read.
func (c *Conn) PeekSocket() State {
	if c.raw == nil {
		return Quiet
	}
	err := c.raw.Control(c.peekFunc)
	switch {
	case err != nil: // adbuffer has closed the socket
		return Ended
	case c.peekErrno == syscall.EAGAIN:
		return Quiet
	case c.peekErrno != 0 || c.peekN == 0:
		return Ended
	default:
		return Readable
	}
}

func (c *Conn) peek(fd uintptr) {
	c.peekN, c.peekErrno = c.sys.Recv(fd, c.peekByte[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
}

// Await waits until bytes or the end of the stream have arrived from the peer, and consumes nothing. It
// fails if the socket is closed. It needs no buffer, and sets no deadline. It returns at once on a connection without
// a file descriptor, and if MidRecord is true. It must not run at the same time as a Read or a Peek.
func (c *Conn) Await() error {
	if c.raw == nil || c.MidRecord() {
		return nil
	}
	return c.raw.Read(func(fd uintptr) bool {
		c.peek(fd)
		return c.peekErrno != syscall.EAGAIN
	})
}

// HasInput reports whether a Read would not wait for the socket. It is true if bytes or the end of
// the stream have arrived, or if the socket has failed or is closed. Bytes that were read ahead for TLS do not count.
// It consumes nothing, and may run at the same time as an Await, a Peek or a Read.
func (c *Conn) HasInput() bool {
	events, open := c.poll(unix.POLLIN)
	return events != 0 || !open
}

// poll asks poll(2) for events, without waiting; open is false if adbuffer has closed the socket. A
// connection without a file descriptor has no events.
func (c *Conn) poll(events int16) (found int16, open bool) {
	if c.raw == nil {
		return 0, true
	}
	err := c.raw.Control(func(fd uintptr) { found = c.sys.Poll(fd, events) })
	return found, err == nil
}
