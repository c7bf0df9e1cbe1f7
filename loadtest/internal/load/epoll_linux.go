package load

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller waits for sockets. One goroutine uses it.
type poller struct {
	fd     int
	events []unix.EpollEvent
	ready  []event
}

// newPoller returns a poller that reports at most batch events at once.
func newPoller(batch int) (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	return &poller{fd: fd, events: make([]unix.EpollEvent, batch), ready: make([]event, batch)}, nil
}

// Close closes the poller. The sockets stay open.
func (p *poller) Close() error { return unix.Close(p.fd) }

// Add watches fd for reading and writing until fd is closed. Events carry key and are
// edge-triggered: the loop reads until a short read and writes until EAGAIN.
func (p *poller) Add(fd int, key int32) error {
	e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: key}
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &e)
}

// Wait returns the sockets that are ready, after timeout at the latest. A negative timeout waits
// without a limit. The slice is valid until the next call.
func (p *poller) Wait(timeout time.Duration) ([]event, error) {
	var ts *unix.Timespec
	if timeout >= 0 {
		t := unix.NsecToTimespec(int64(timeout))
		ts = &t
	}
	// epoll_wait takes milliseconds, which is too coarse for thousands of requests a second.
	// epoll_pwait2 takes nanoseconds.
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])),
		uintptr(len(p.events)), uintptr(unsafe.Pointer(ts)), 0, 0)
	if errno == unix.EINTR {
		return nil, nil
	}
	if errno != 0 {
		return nil, fmt.Errorf("epoll_pwait2 (Linux 5.11 or newer is needed): %w", errno)
	}
	for i := range p.events[:n] {
		e := &p.events[i]
		p.ready[i] = event{
			Key:      e.Fd,
			Readable: e.Events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0,
			Writable: e.Events&unix.EPOLLOUT != 0,
			HungUp:   e.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0,
		}
	}
	return p.ready[:n], nil
}

// openSocket returns a non-blocking TCP socket.
func openSocket(family int) (int, error) {
	return unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
}
