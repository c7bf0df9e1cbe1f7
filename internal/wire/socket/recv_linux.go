//go:build !386 && !s390x

package socket

import (
	"syscall"
	"unsafe"
)

// recvfrom calls recvfrom(2) on a nonblocking socket. It uses RawSyscall, which does not inform the
// scheduler. n is 0 if it fails.
func recvfrom(fd uintptr, p []byte, flags int) (n int, errno syscall.Errno) {
	r, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd,
		uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(flags), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(r), 0
}

// sendto calls sendto(2), like recvfrom. A closed peer causes EPIPE, never a signal.
func sendto(fd uintptr, p []byte) (n int, errno syscall.Errno) {
	r, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, fd,
		uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), syscall.MSG_NOSIGNAL|syscall.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(r), 0
}
