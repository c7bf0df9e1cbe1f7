package socket

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// HangUps tells when peers close their connections. One goroutine serves all connections.
// A connection costs a system call when it is added, and nothing while its peer stays.
type HangUps struct {
	set *os.File // an epoll set, which the runtime's poller waits for

	mu  sync.Mutex
	all map[int32]watched // by file descriptor
}

type watched struct {
	conn   *Conn
	hungUp func()
}

// NewHangUps starts its goroutine, which ends with Close.
func NewHangUps() (*HangUps, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd) //nolint:errcheck // err says more
		return nil, err
	}
	h := &HangUps{set: os.NewFile(uintptr(fd), "epoll"), all: make(map[int32]watched)}
	raw, err := h.set.SyscallConn()
	if err != nil {
		return nil, err
	}
	go h.run(raw)
	return h, nil
}

// Add has hungUp called when c's peer closes its connection or the sending half of it, and
// again when the connection fails. It must not block.
func (h *HangUps) Add(c *Conn, hungUp func()) {
	if h == nil || !c.IsKernels() {
		return
	}
	c.raw.Control(func(fd uintptr) { //nolint:errcheck // a closed socket needs no watch
		h.mu.Lock()
		h.all[int32(fd)] = watched{c, hungUp}
		h.mu.Unlock()
		event := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(fd)}
		h.control(func(set uintptr) { unix.EpollCtl(int(set), unix.EPOLL_CTL_ADD, int(fd), &event) }) //nolint:errcheck // without a watch, requests end at their deadlines
	})
}

// Remove must be called before c is closed. hungUp may still be called once.
func (h *HangUps) Remove(c *Conn) {
	if h == nil || !c.IsKernels() {
		return
	}
	c.raw.Control(func(fd uintptr) { //nolint:errcheck // as above
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.all[int32(fd)].conn == c {
			delete(h.all, int32(fd))
		}
	})
}

// Close ends the goroutine.
func (h *HangUps) Close() error {
	if h == nil {
		return nil
	}
	return h.set.Close()
}

func (h *HangUps) control(f func(set uintptr)) {
	if raw, err := h.set.SyscallConn(); err == nil {
		raw.Control(f) //nolint:errcheck // it is closed
	}
}

func (h *HangUps) run(raw syscall.RawConn) {
	var events [64]unix.EpollEvent
	for {
		n := 0
		err := raw.Read(func(set uintptr) bool {
			n, _ = unix.EpollWait(int(set), events[:], 0) //nolint:errcheck // EINTR: it is called again
			return n > 0
		})
		if err != nil {
			return
		}
		for _, e := range events[:max(n, 0)] {
			h.mu.Lock()
			w := h.all[e.Fd]
			h.mu.Unlock()
			// The descriptor may belong to another connection by now.
			if w.conn != nil && w.conn.HungUp() {
				w.hungUp()
			}
		}
	}
}
