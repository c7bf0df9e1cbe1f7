//go:build !linux || 386 || s390x

package socket

import "syscall"

// recvfrom calls recvfrom(2), for developers' machines, and for Linux ports without a separate
// system call (socketcall).
func recvfrom(fd uintptr, p []byte, flags int) (n int, errno syscall.Errno) {
	n, _, err := syscall.Recvfrom(int(fd), p, flags)
	return max(n, 0), errnoOf(err)
}

// sendto calls write(2), for which the Go runtime suppresses signals.
func sendto(fd uintptr, p []byte) (n int, errno syscall.Errno) {
	n, err := syscall.Write(int(fd), p)
	return max(n, 0), errnoOf(err)
}

func errnoOf(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	if errno, ok := err.(syscall.Errno); ok {
		return errno
	}
	return syscall.EIO
}
