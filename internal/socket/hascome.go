package socket

import "golang.org/x/sys/unix"

// HasCome reports whether a Read would not wait for the socket: bytes have come,
// or the end of the stream, or the socket has failed or is closed. It takes
// nothing away, and may run beside an Await, a look or a Read.
func (c *Conn) HasCome() bool {
	events, open := c.poll(unix.POLLIN)
	return events != 0 || !open
}

// poll asks poll(2) for events, without waiting; open is false if the socket is
// closed on our side. A connection without a file descriptor has no events.
func (c *Conn) poll(events int16) (found int16, open bool) {
	if c.raw == nil {
		return 0, true
	}
	err := c.raw.Control(func(fd uintptr) { found = c.sys.Poll(fd, events) })
	return found, err == nil
}
