package socket

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// System makes the system calls of a Conn. No method may block, since the calls bypass the scheduler, and none
// returns EINTR. A simulated socket implements System itself.
type System interface {
	// Recv calls recvfrom(2). n is 0 if it fails.
	Recv(fd uintptr, p []byte, flags int) (n int, errno syscall.Errno)
	// Send calls sendto(2). A closed peer causes EPIPE, never a signal.
	Send(fd uintptr, p []byte) (n int, errno syscall.Errno)
	// Poll calls poll(2) without waiting, and returns the events that have occurred: those of events, errors and hang-ups.
	Poll(fd uintptr, events int16) (found int16)
}

// kernel is the System of real sockets.
type kernel struct{}

func (kernel) Recv(fd uintptr, p []byte, flags int) (n int, errno syscall.Errno) {
	for {
		n, errno = recvfrom(fd, p, flags)
		if errno != syscall.EINTR {
			return n, errno
		}
	}
}

func (kernel) Send(fd uintptr, p []byte) (n int, errno syscall.Errno) {
	for {
		n, errno = sendto(fd, p)
		if errno != syscall.EINTR {
			return n, errno
		}
	}
}

func (kernel) Poll(fd uintptr, events int16) int16 {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		if _, err := unix.Poll(fds[:], 0); err != unix.EINTR { // an unwrapped errno
			return fds[0].Revents
		}
	}
}
