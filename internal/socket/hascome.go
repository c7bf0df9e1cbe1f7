package socket

import "golang.org/x/sys/unix"

// HasCome reports whether a Read would not wait for the socket: bytes or the end of the stream have
// arrived, or the socket has failed or is closed. It consumes nothing, and may run at the same time
// as an Await, a Peek or a Read.
func (c *Conn) HasCome() bool {
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
