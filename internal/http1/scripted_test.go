package http1

import (
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/socket"
)

// scripted is a socket for synctest bubbles. It is one end of a real socket pair,
// so that every look, read and write is the kernel's; but it waits by channels and
// timers of the bubble, so that moments are exact. The script holds the other end.
//
// As in the runtime's poller, a deadline that has passed fails a read also where
// bytes are there.
type scripted struct {
	tb testing.TB

	mu     sync.Mutex // guards the fields below, and is held during system calls
	fd     int        // ours, -1 once closed
	far    int        // the script's, -1 once closed
	wake   chan struct{}
	readBy time.Time
	sendBy time.Time
	held   bool // the script's bytes do not wake a waiting read yet; see hold

	received int  // bytes that the script has taken from far
	refuse   int  // writes fail from the byte of this number on; -1 for never
	sent     int  // bytes that writes have put into fd
	stuck    bool // writes wait
}

func newScripted(tb testing.TB) *scripted {
	tb.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		tb.Fatal(err)
	}
	s := &scripted{tb: tb, fd: pair[0], far: pair[1], wake: make(chan struct{}), refuse: -1}
	for _, fd := range pair {
		if err := syscall.SetNonblock(fd, true); err != nil {
			tb.Fatal(err)
		}
	}
	return s
}

// release closes both ends.
func (s *scripted) release() {
	s.Close()
	s.end()
}

func (s *scripted) signalLocked() {
	close(s.wake)
	s.wake = make(chan struct{})
}

func (s *scripted) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.signalLocked()
}

// The script's side.

// send makes b arrive.
func (s *scripted) send(b string) {
	s.tb.Helper()
	s.change(func() {
		for len(b) > 0 && s.fd >= 0 {
			n, err := syscall.Write(s.far, []byte(b))
			if err != nil {
				s.tb.Fatalf("the script cannot send: %v", err)
			}
			b = b[n:]
		}
	})
}

// end closes the script's end: FIN, or what a socket pair has for RST where bytes
// lie unread in it.
func (s *scripted) end() {
	s.change(func() {
		if s.far >= 0 {
			syscall.Close(s.far)
			s.far = -1
		}
	})
}

// take returns what has been written to the connection since the last take.
func (s *scripted) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []byte
	b := make([]byte, 64<<10)
	for s.far >= 0 {
		n, err := syscall.Read(s.far, b)
		if n <= 0 || err != nil {
			break
		}
		all = append(all, b[:n]...)
	}
	s.received += len(all)
	s.signalLocked()
	return string(all)
}

// hold keeps reads that wait from waking when bytes come, as if their goroutine
// were not scheduled, until it is called with false.
func (s *scripted) hold(on bool) { s.change(func() { s.held = on }) }

// failWrites lets n more bytes be written; then writes fail.
func (s *scripted) failWrites(n int) { s.change(func() { s.refuse = s.sent + n }) }

// stall makes writes wait, as on a socket that is full, until it is called with
// false.
func (s *scripted) stall(on bool) { s.change(func() { s.stuck = on }) }

func (s *scripted) closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fd < 0
}

// The connection's side, as socket.Conn uses it.

func (s *scripted) SyscallConn() (syscall.RawConn, error) { return (*rawScripted)(s), nil }

type rawScripted scripted

func (r *rawScripted) Control(f func(fd uintptr)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fd < 0 {
		return net.ErrClosed
	}
	f(uintptr(r.fd))
	return nil
}

func (r *rawScripted) Read(f func(fd uintptr) bool) error {
	return (*scripted)(r).wait(&r.readBy, func() bool { return !r.held && f(uintptr(r.fd)) })
}

func (r *rawScripted) Write(f func(fd uintptr) bool) error {
	return (*scripted)(r).wait(&r.sendBy, func() bool { return f(uintptr(r.fd)) })
}

// Recv, Send and Poll are socket.System. They run under mu, within the functions
// that the raw connection calls.

func (s *scripted) Recv(fd uintptr, p []byte, flags int) (int, syscall.Errno) {
	n, _, err := syscall.Recvfrom(int(fd), p, flags|syscall.MSG_DONTWAIT)
	return max(n, 0), errnoOf(err)
}

func (s *scripted) Send(fd uintptr, p []byte) (int, syscall.Errno) {
	switch {
	case s.stuck:
		return 0, syscall.EAGAIN
	case s.refuse >= 0 && s.sent >= s.refuse:
		return 0, syscall.EPIPE
	case s.refuse >= 0:
		p = p[:min(len(p), s.refuse-s.sent)]
	}
	n, err := syscall.Write(int(fd), p)
	s.sent += max(n, 0)
	return max(n, 0), errnoOf(err)
}

func (s *scripted) Poll(uintptr, int16) int16 { panic("BUG: connections to SSPs do not poll") }

func errnoOf(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	return err.(syscall.Errno) //nolint:errorlint // what package syscall returns
}

// wait calls f until it returns true, as often as something changes.
func (s *scripted) wait(by *time.Time, f func() bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.fd < 0 {
			return net.ErrClosed
		}
		var timer <-chan time.Time
		if !by.IsZero() {
			left := time.Until(*by)
			if left <= 0 {
				return os.ErrDeadlineExceeded
			}
			t := time.NewTimer(left)
			defer t.Stop()
			timer = t.C
		}
		if f() {
			return nil
		}
		wake := s.wake
		s.mu.Unlock()
		select {
		case <-wake:
		case <-timer:
		}
		s.mu.Lock()
	}
}

func (s *scripted) Close() error {
	s.change(func() {
		if s.fd >= 0 {
			syscall.Close(s.fd)
			s.fd = -1
		}
	})
	return nil
}

func (s *scripted) SetReadDeadline(t time.Time) error {
	s.change(func() { s.readBy = t })
	return nil
}

func (s *scripted) SetWriteDeadline(t time.Time) error {
	s.change(func() { s.sendBy = t })
	return nil
}

func (s *scripted) SetDeadline(t time.Time) error {
	s.change(func() { s.readBy, s.sendBy = t, t })
	return nil
}

func (s *scripted) LocalAddr() net.Addr  { return &net.UnixAddr{Net: "unix"} }
func (s *scripted) RemoteAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// Read and Write would go around socket.Conn's system calls.
func (s *scripted) Read([]byte) (int, error)  { panic("BUG: not by the raw connection") }
func (s *scripted) Write([]byte) (int, error) { panic("BUG: not by the raw connection") }

var (
	_ net.Conn      = (*scripted)(nil)
	_ syscall.Conn  = (*scripted)(nil)
	_ socket.System = (*scripted)(nil)
)
