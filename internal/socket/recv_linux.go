package socket

import (
	"syscall"
	"unsafe"
)

// recv is one recvfrom(2). With MSG_DONTWAIT, which all of our callers set, it
// cannot block, so it need not tell the scheduler (RawSyscall).
func (c *Conn) recv(fd uintptr) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd,
		uintptr(unsafe.Pointer(unsafe.SliceData(c.buf))), uintptr(len(c.buf)), uintptr(c.flags), 0, 0)
	c.n, c.errno = int(n), errno
	if errno != 0 {
		c.n = 0
	}
}
