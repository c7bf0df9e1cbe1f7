package socket

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Watch reports that a peer closes its connection, or that bytes arrive, while no goroutine reads from the
// connection. It is an epoll set with one goroutine for all connections. A connection costs a system call when it is
// added, and each time that it awaits another event.
type Watch struct {
	set *os.File // the runtime's poller waits for it

	mu      sync.Mutex // guards the fields below
	watched []watched  // by file descriptor
	token   int32      // of the last added connection
}

// watched is a connection in the set. Each of its events carries its token, since an event may
// belong to an earlier connection with the same descriptor.
type watched struct {
	owner Watcher // nil if the connection was removed
	token int32
}

const (
	hangUps  = unix.EPOLLRDHUP | unix.EPOLLET
	arrivals = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLONESHOT
)

// NewWatch starts the Watch's goroutine, which ends with Close.
func NewWatch() (*Watch, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	w := &Watch{set: os.NewFile(uintptr(fd), "epoll")}
	raw, err := w.set.SyscallConn()
	if err != nil {
		return nil, err
	}
	go w.run(raw)
	return w, nil
}

// Add begins to watch c. It calls owner when c's peer closes its connection or its sending half,
// and again when the connection fails.
func (w *Watch) Add(c *Conn, owner Watcher) {
	w.control(c, func(set, fd uintptr) {
		w.mu.Lock()
		for len(w.watched) <= int(fd) {
			w.watched = append(w.watched, watched{})
		}
		w.token++
		w.watched[fd] = watched{owner, w.token}
		event := unix.EpollEvent{Events: hangUps, Fd: int32(fd), Pad: w.token}
		w.mu.Unlock()
		unix.EpollCtl(int(set), unix.EPOLL_CTL_ADD, int(fd), &event) //nolint:errcheck // without a watch, requests end at their deadlines
	})
}

// AwaitHangUp does what Add does, for a file descriptor that was added before, perhaps with another Conn.
func (w *Watch) AwaitHangUp(c *Conn, owner Watcher) { w.modify(c, owner, hangUps) }

// AwaitArrival calls owner once, as soon as a Read of c would not wait, and reports no other event. It returns false
// if it cannot watch c.
func (w *Watch) AwaitArrival(c *Conn, owner Watcher) bool {
	return !c.MidRecord() && w.modify(c, owner, arrivals)
}

func (w *Watch) modify(c *Conn, owner Watcher, events uint32) (ok bool) {
	w.control(c, func(set, fd uintptr) {
		w.mu.Lock()
		if int(fd) >= len(w.watched) || w.watched[fd].owner == nil {
			w.mu.Unlock()
			return
		}
		entry := &w.watched[fd]
		entry.owner = owner
		event := unix.EpollEvent{Events: events, Fd: int32(fd), Pad: entry.token}
		w.mu.Unlock()
		ok = unix.EpollCtl(int(set), unix.EPOLL_CTL_MOD, int(fd), &event) == nil
	})
	return ok
}

// Remove ends the watch of c, whose last owner is owner. owner may still receive one event. c may
// be closed already.
func (w *Watch) Remove(c *Conn, owner Watcher) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if int(c.watchFD) < len(w.watched) && w.watched[c.watchFD].owner == owner {
		w.watched[c.watchFD] = watched{}
	}
}

// Close ends the goroutine.
func (w *Watch) Close() error {
	if w == nil {
		return nil
	}
	return w.set.Close()
}

// control calls f with both descriptors, unless one of them is closed.
func (w *Watch) control(c *Conn, f func(set, fd uintptr)) {
	if w == nil || !c.IsKernelSocket() {
		return
	}
	raw, err := w.set.SyscallConn()
	if err != nil {
		return
	}
	c.raw.Control(func(fd uintptr) {
		c.watchFD = int32(fd)
		raw.Control(func(set uintptr) { f(set, fd) })
	})
}

func (w *Watch) run(raw syscall.RawConn) {
	var events [128]unix.EpollEvent
	for {
		n := 0
		err := raw.Read(func(set uintptr) bool {
			n, _ = unix.EpollWait(int(set), events[:], 0)
			return n > 0
		})
		if err != nil {
			return
		}
		for _, e := range events[:max(n, 0)] {
			w.mu.Lock()
			entry := w.watched[e.Fd]
			w.mu.Unlock()
			if entry.owner != nil && entry.token == e.Pad {
				entry.owner.Notify(e.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0)
			}
		}
	}
}
