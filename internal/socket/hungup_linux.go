package socket

import "golang.org/x/sys/unix"

// HungUp reports whether the peer has closed the connection or its sending half, or the socket has
// failed or is closed. Unlike Peek it also detects this behind unread bytes. It consumes nothing,
// and may run at the same time as a Read.
func (c *Conn) HungUp() bool {
	events, open := c.poll(unix.POLLRDHUP)
	return events != 0 || !open
}

// Failed reports whether both halves of the connection have ended: the peer has reset it, or the
// socket has failed or is closed. It may run at the same time as a Read.
func (c *Conn) Failed() bool {
	events, open := c.poll(0)
	return events != 0 || !open
}
