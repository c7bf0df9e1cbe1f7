package socket

import (
	"time"

	"golang.org/x/sys/unix"
)

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

// SinceInput returns how long ago the last bytes of the peer arrived at the kernel, to a few
// milliseconds. ok is false if that is unknown, as for a Unix socket.
func (c *Conn) SinceInput() (since time.Duration, ok bool) {
	if c.raw == nil {
		return 0, false
	}
	c.raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			since, ok = time.Duration(info.Last_data_recv)*time.Millisecond, true
		}
	})
	return since, ok
}
