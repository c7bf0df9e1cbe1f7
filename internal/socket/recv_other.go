//go:build !linux

package socket

import "syscall"

// recv is one recvfrom(2), for developers' machines: adbuffer runs on Linux.
func (c *Conn) recv(fd uintptr) {
	n, _, err := syscall.Recvfrom(int(fd), c.buf, c.flags)
	c.n, c.errno = n, 0
	if err != nil {
		c.n = 0
		errno, ok := err.(syscall.Errno)
		if !ok {
			errno = syscall.EIO
		}
		c.errno = errno
	}
}
