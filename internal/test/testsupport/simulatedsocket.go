package testsupport

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// SimulatedSocket is a socket for synctest bubbles. It is one end of a real socket pair, so the
// kernel does each poll, read and write. But it waits by channels and timers of the bubble, so
// moments are exact. The script holds the other end.
//
// As in the runtime's poller, a read fails if its deadline has passed, even if bytes are available.
type SimulatedSocket struct {
	tb testing.TB

	mu    sync.Mutex // guards the fields below, and is held during system calls
	fd    int        // descriptor of the socket under test; -1 once closed
	ended bool       // the socket's sending half is closed
	far   int        // descriptor of the script's end; -1 once closed
	held  bool       // the script's bytes do not wake a waiting read yet; see Hold

	looks    int    // how many reads find nothing before behind arrives; 0 = behind never arrives
	behind   string // see ArriveBehind
	received int    // bytes that reads have taken from fd
	refuse   int    // writes fail after so many bytes; -1 = never
	sent     int    // bytes that writes have put into fd
	stuck    bool   // writes block

	// A deadline may be set within a function that the raw connection calls.
	timing sync.Mutex    // guards the fields below; may be locked while mu is held
	wake   chan struct{} // closed when something changes, and then made again
	readBy time.Time
	sendBy time.Time
}

// NewSimulatedSocket returns a SimulatedSocket. Release closes it.
func NewSimulatedSocket(tb testing.TB) *SimulatedSocket {
	tb.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	NoError(tb, err)
	s := &SimulatedSocket{tb: tb, fd: pair[0], far: pair[1], wake: make(chan struct{}), refuse: -1}
	for _, fd := range pair {
		NoError(tb, syscall.SetNonblock(fd, true))
	}
	return s
}

// Release closes both ends.
func (s *SimulatedSocket) Release() {
	s.Close()
	s.End()
}

// time calls f, which may set deadlines, and wakes all waiting calls.
func (s *SimulatedSocket) time(f func()) {
	s.timing.Lock()
	defer s.timing.Unlock()
	f()
	close(s.wake)
	s.wake = make(chan struct{})
}

func (s *SimulatedSocket) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.time(func() {})
}

// The script's side.

// Arrive makes b arrive.
func (s *SimulatedSocket) Arrive(b string) { s.change(func() { s.arrive(b) }) }

func (s *SimulatedSocket) arrive(b string) {
	for len(b) > 0 && s.fd >= 0 {
		n, err := syscall.Write(s.far, []byte(b))
		if err != nil {
			s.tb.Errorf("the script cannot send: %v", err)
			return
		}
		b = b[n:]
	}
}

// ArriveBehind makes b arrive right after the n-th read from now on that finds nothing.
func (s *SimulatedSocket) ArriveBehind(n int, b string) {
	s.change(func() { s.looks, s.behind = n, b })
}

// Pending reports whether the bytes of ArriveBehind have not arrived yet.
func (s *SimulatedSocket) Pending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looks > 0
}

// End closes the script's end. The connection sees a FIN, or the socket pair's equivalent of an RST
// if bytes in it are unread.
func (s *SimulatedSocket) End() {
	s.change(func() {
		if s.far >= 0 {
			syscall.Close(s.far)
			s.far = -1
		}
	})
}

// Take returns the bytes that were written to the connection since the last Take.
func (s *SimulatedSocket) Take() string {
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
	s.time(func() {})
	return string(all)
}

// Hold(true) keeps waiting reads from waking when bytes arrive, as if their goroutine were not
// scheduled. Hold(false) ends that.
func (s *SimulatedSocket) Hold(on bool) { s.change(func() { s.held = on }) }

// FailWrites lets n more bytes be written. Later writes fail.
func (s *SimulatedSocket) FailWrites(n int) { s.change(func() { s.refuse = s.sent + n }) }

// Stall(true) makes writes wait, as on a full socket. Stall(false) ends that.
func (s *SimulatedSocket) Stall(on bool) { s.change(func() { s.stuck = on }) }

// Received returns how many of the sent bytes the connection has read.
func (s *SimulatedSocket) Received() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.received
}

// Closed reports whether the connection has closed its end, or the sending half of it.
func (s *SimulatedSocket) Closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fd < 0 || s.ended
}

// The connection's side, as socket.Conn uses it.

func (s *SimulatedSocket) SyscallConn() (syscall.RawConn, error) { return (*rawSocket)(s), nil }

type rawSocket SimulatedSocket

func (r *rawSocket) Control(f func(fd uintptr)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fd < 0 {
		return net.ErrClosed
	}
	f(uintptr(r.fd))
	return nil
}

func (r *rawSocket) Read(f func(fd uintptr) bool) error {
	return (*SimulatedSocket)(r).wait(&r.readBy, func() bool { return !r.held && f(uintptr(r.fd)) })
}

func (r *rawSocket) Write(f func(fd uintptr) bool) error {
	return (*SimulatedSocket)(r).wait(&r.sendBy, func() bool { return f(uintptr(r.fd)) })
}

// Recv, Send and Poll are a socket.System. They run under mu, within the functions
// that the raw connection calls.

// Recv implements socket.System.
func (s *SimulatedSocket) Recv(fd uintptr, p []byte, flags int) (int, syscall.Errno) {
	n, _, err := syscall.Recvfrom(int(fd), p, flags|syscall.MSG_DONTWAIT)
	if flags&syscall.MSG_PEEK == 0 {
		s.received += max(n, 0)
	}
	if s.looks > 0 && n < 0 {
		s.looks--
		if s.looks == 0 {
			s.arrive(s.behind)
			s.time(func() {})
		}
	}
	return max(n, 0), errnoOf(err)
}

// Send implements socket.System.
func (s *SimulatedSocket) Send(fd uintptr, p []byte) (int, syscall.Errno) {
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

// Poll implements socket.System.
func (s *SimulatedSocket) Poll(fd uintptr, events int16) int16 {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: events}}
	if _, err := unix.Poll(fds[:], 0); err != nil {
		s.tb.Errorf("poll: %v", err)
	}
	return fds[0].Revents
}

func errnoOf(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	return err.(syscall.Errno) // package syscall returns an Errno
}

// wait calls f after each change until it returns true.
func (s *SimulatedSocket) wait(by *time.Time, f func() bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		wake, left := s.until(by)
		switch {
		case s.fd < 0:
			return net.ErrClosed
		case left <= 0:
			return os.ErrDeadlineExceeded
		case f():
			return nil
		}
		_, left = s.until(by) // f may have set it
		timer := time.NewTimer(left)
		s.mu.Unlock()
		select {
		case <-wake:
		case <-timer.C:
		}
		timer.Stop()
		s.mu.Lock()
	}
}

// until returns a channel that closes when something changes, and the time until a deadline.
func (s *SimulatedSocket) until(by *time.Time) (wake chan struct{}, left time.Duration) {
	s.timing.Lock()
	defer s.timing.Unlock()
	if by.IsZero() {
		return s.wake, 1<<63 - 1
	}
	return s.wake, time.Until(*by)
}

// Close implements net.Conn.
func (s *SimulatedSocket) Close() error {
	s.change(func() {
		if s.fd >= 0 {
			syscall.Close(s.fd)
			s.fd = -1
		}
	})
	return nil
}

// SetReadDeadline implements net.Conn.
func (s *SimulatedSocket) SetReadDeadline(t time.Time) error {
	s.time(func() { s.readBy = t })
	return nil
}

func (s *SimulatedSocket) SetWriteDeadline(t time.Time) error {
	s.time(func() { s.sendBy = t })
	return nil
}

func (s *SimulatedSocket) SetDeadline(t time.Time) error {
	s.time(func() { s.readBy, s.sendBy = t, t })
	return nil
}

func (s *SimulatedSocket) LocalAddr() net.Addr  { return &net.UnixAddr{Net: "unix"} }
func (s *SimulatedSocket) RemoteAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// CloseWrite ends the connection's sending half.
func (s *SimulatedSocket) CloseWrite() error {
	s.change(func() {
		s.ended = true
		if s.fd >= 0 {
			syscall.Shutdown(s.fd, syscall.SHUT_WR)
		}
	})
	return nil
}

// Read implements net.Conn, for calls that do not use socket.Conn.
func (s *SimulatedSocket) Read(b []byte) (n int, err error) {
	var errno syscall.Errno
	err = (*rawSocket)(s).Read(func(fd uintptr) bool {
		n, errno = s.Recv(fd, b, 0)
		return errno != syscall.EAGAIN
	})
	switch {
	case err != nil:
		return 0, err
	case errno != 0:
		return 0, errno
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write panics: a write must use socket.Conn's system calls.
func (s *SimulatedSocket) Write([]byte) (int, error) { panic("BUG: a write without socket.Conn") }
