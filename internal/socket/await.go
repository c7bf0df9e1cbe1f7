package socket

import (
	"errors"
	"os"
	"syscall"
)

// Await waits until something has come from the peer, if only the end of the
// stream, and takes nothing away. It fails at the read deadline, or where the
// socket is closed; on a connection without a file descriptor it returns at
// once. It needs no buffer, and must not run at the same time as a Read or a
// look.
func (c *Conn) Await() error {
	if c.raw == nil || c.MidRecord() {
		return nil
	}
	for {
		err := c.raw.Read(c.look)
		if !errors.Is(err, os.ErrDeadlineExceeded) || !c.read.rearm(c.Conn.SetReadDeadline) {
			return err
		}
	}
}

// look reports whether a read would not wait.
func (c *Conn) look(fd uintptr) bool {
	c.buf, c.flags = c.one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT
	for c.recv(fd); c.errno == syscall.EINTR; {
		c.recv(fd)
	}
	c.buf = nil
	return c.errno != syscall.EAGAIN
}
