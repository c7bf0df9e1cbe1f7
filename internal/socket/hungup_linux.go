package socket

import "golang.org/x/sys/unix"

// HungUp reports whether the peer has closed the connection, or its sending half
// of it, or the socket has failed or is closed: also where bytes that came before
// have not been read, which Peek cannot look past. It takes nothing away, and may
// run beside a Read.
func (c *Conn) HungUp() bool {
	if c.raw == nil {
		return false
	}
	var fds [1]unix.PollFd
	err := c.raw.Control(func(fd uintptr) {
		fds[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLRDHUP}
		for {
			if _, err := unix.Poll(fds[:], 0); err != unix.EINTR { //nolint:errorlint // an errno as it came
				return
			}
		}
	})
	return err != nil || fds[0].Revents != 0
}
