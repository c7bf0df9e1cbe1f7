package socket

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// Await waits until bytes or the end of the stream have arrived from the peer, and consumes
// nothing. It fails at until, or if the socket is closed. On a connection without a file descriptor
// it returns at once. It needs no buffer, and must not run at the same time as a Read or a Peek.
func (c *Conn) Await(until time.Time) error {
	if c.raw == nil || c.MidRecord() {
		return nil
	}
	d := &c.in
	d.deadline.set(until, d.arm)
	err := c.raw.Read(c.look)
	for errors.Is(err, os.ErrDeadlineExceeded) && d.rearmed() {
		err = c.raw.Read(c.look)
	}
	d.deadline.set(time.Time{}, d.arm)
	if errors.Is(err, os.ErrDeadlineExceeded) && c.PeekSocket() != Quiet {
		return nil // the bytes arrived in time
	}
	return err
}

// look reports whether a read would not wait.
func (c *Conn) look(fd uintptr) bool {
	c.peek(fd)
	return c.errno != syscall.EAGAIN
}
