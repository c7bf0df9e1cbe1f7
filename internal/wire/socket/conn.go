// Package socket is adbuffer's layer below HTTP and TLS. It arms a deadline only when a read or
// write must wait. It inspects sockets without blocking, and stops reads at the end of a TLS
// record.
package socket

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// Conn is a stream socket (TCP or unix) with cheap deadlines and a Peek. It is a net.Conn. One
// goroutine may read while another writes, and any goroutine may set deadlines or close.
type Conn struct {
	net.Conn
	raw syscall.RawConn

	sys System
	in  direct
	out direct
	// burstWrite is the state of the current WriteInBurst.
	burstWrite burstWrite

	watchFD int32 // the file descriptor under which a Watch has the connection

	// records, if not nil, keeps reads within TLS records; see Records.
	records *records
	// nonblocking makes Read return errWouldBlock instead of waiting.
	nonblocking atomic.Bool

	// The fields below belong to Peek and Await, which never run at the same time.
	peekFunc  func(fd uintptr) // calls peek; stored once to save an allocation
	peekByte  [1]byte
	peekN     int
	peekErrno syscall.Errno
}

// New wraps c, which must be a TCP or Unix stream socket. A net.Conn without a file descriptor, such as a pipe in a
// test, works too, but its Peek detects nothing.
func New(c net.Conn) *Conn {
	s := &Conn{Conn: c, sys: kernel{}}
	if own, ok := c.(System); ok {
		s.sys = own
	}
	if sc, ok := c.(syscall.Conn); ok {
		s.raw, _ = sc.SyscallConn() // an error means that c is closed, which Peek reports
	}
	s.peekFunc = s.peek
	s.in = direct{conn: c, raw: s.raw, sys: s.sys, arm: c.SetReadDeadline}
	s.out = direct{conn: c, raw: s.raw, sys: s.sys, arm: c.SetWriteDeadline}
	s.in.waitingCall, s.in.recvNowFunc, s.out.waitingCall = s.in.recv, s.in.recvNow, s.out.send
	return s
}

// IsKernelSocket reports whether the connection is a socket of the kernel, and not a simulated socket or a pipe.
func (c *Conn) IsKernelSocket() bool {
	_, ok := c.sys.(kernel)
	return ok && c.raw != nil
}

// PeerOf returns the IP address at the other end of c, the zero Addr for a Unix socket.
func PeerOf(c net.Conn) netip.Addr {
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// SendBuffer returns the size of the kernel's send buffer in bytes, or 0 if it is unknown.
func (c *Conn) SendBuffer() (size int) {
	if c.raw == nil {
		return 0
	}
	c.raw.Control(func(fd uintptr) {
		size, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF)
	})
	return max(size, 0)
}

// Read reads like net.Conn. It waits until the read deadline at most.
func (c *Conn) Read(p []byte) (int, error) {
	switch {
	case len(p) == 0:
		return 0, nil
	case c.records != nil:
		return c.records.read(p, c.readSocket)
	}
	return c.readSocket(p)
}

func (c *Conn) readSocket(p []byte) (int, error) {
	if c.nonblocking.Load() {
		return c.in.readNow(p, errWouldBlock)
	}
	c.in.beginCall()
	n, err := c.in.read(p)
	for n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.in.rearmed() {
		n, err = c.in.read(p)
	}
	if (c.in.hasWaitDeadline || c.in.interrupted.Load()) && n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		n, err = c.in.readNow(p, os.ErrDeadlineExceeded)
	}
	c.in.endCall()
	return n, err
}

// Write writes all of p, like net.Conn, or fails at the write deadline.
func (c *Conn) Write(p []byte) (int, error) {
	c.out.beginCall()
	done, err := c.out.write(p)
	for errors.Is(err, os.ErrDeadlineExceeded) && c.out.rearmed() {
		var n int
		n, err = c.out.write(p[done:])
		done += n
	}
	c.out.endCall()
	return done, err
}

// OnWait sets functions that return a deadline; the zero time means no deadline. A Read that must wait for the peer calls
// read once, before it waits, and a Write that must wait calls write. So a Read or Write that need not wait sets no
// deadline. The deadline applies only to the Read or Write that asked for it. If bytes have arrived when the deadline of
// a Read passes, the Read returns the bytes and no error, even if it wakes late.
//
// No Read or Write may run during OnWait. A nil function is not called.
func (c *Conn) OnWait(read, write func() time.Time) { c.in.onWait, c.out.onWait = read, write }

// SetReadDeadline sets the deadline of Read; the zero time means no deadline.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.in.deadline.set(t, c.in.arm) }

// SetWriteDeadline sets the deadline of Write; the zero time means no deadline.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.out.deadline.set(t, c.out.arm) }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// errWouldBlock stands for EAGAIN. crypto/tls keeps a connection usable after
// an error only if it is a net.Error that is Temporary.
var errWouldBlock net.Error = wouldBlock{}

type wouldBlock struct{}

func (wouldBlock) Error() string   { return "nothing to read now" }
func (wouldBlock) Timeout() bool   { return true }
func (wouldBlock) Temporary() bool { return true }

// WouldBlock reports whether err is the error of a nonblocking read that found no bytes.
func WouldBlock(err error) bool { return errors.Is(err, errWouldBlock) }

// SetNonblocking makes reads return an error for which WouldBlock is true, instead of waiting.
// Between exchanges it is used to read the bytes that have already arrived.
func (c *Conn) SetNonblocking(on bool) { c.nonblocking.Store(on) }

// Interrupt makes every Read that waits or would wait, now and later, fail as if its deadline had passed. A Read
// still returns bytes that have arrived. Without a read function of OnWait, the next SetReadDeadline ends the effect. Any
// goroutine may call Interrupt.
func (c *Conn) Interrupt() {
	c.in.interrupted.Store(true)
	c.SetReadDeadline(past)
}
