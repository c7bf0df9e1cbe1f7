package socket

import (
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// direct is one direction of a socket whose system calls bypass the Go scheduler. This is safe
// because they never block. recvfrom(2) and sendto(2) take a shorter way through the kernel than
// read(2) and write(2). The runtime's poller waits for the socket, as usual.
//
// One goroutine uses it at a time. waitingCall and recvNowFunc are stored once, so that a read or write costs no
// allocation.
type direct struct {
	conn        net.Conn
	raw         syscall.RawConn // nil if conn has no file descriptor: a pipe in a test
	sys         System
	arm         func(time.Time) error // sets the runtime's timer for this direction
	waitingCall func(fd uintptr) bool
	recvNowFunc func(fd uintptr) // recvNow
	buf         []byte
	n           int
	errno       syscall.Errno

	deadline        deadline
	onWait          func() time.Time // see OnWait; may be nil
	waitCalled      bool             // the current Read or Write has called onWait
	hasWaitDeadline bool             // onWait returned a deadline, which applies to the current Read or Write
	// interrupted is set by Interrupt, before Interrupt moves the deadline into the past. applyWaitDeadline moves the
	// deadline before it loads interrupted. So whichever runs first, the deadline ends in the past.
	interrupted atomic.Bool
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// beginCall and endCall enclose a Read or Write.
func (d *direct) beginCall() { d.waitCalled = false }

func (d *direct) endCall() {
	if d.hasWaitDeadline {
		d.hasWaitDeadline = false
		d.deadline.set(time.Time{}, d.arm)
	}
}

// rearmed reports whether the timer fired before the current deadline. If so, it sets the timer to the current
// deadline.
func (d *direct) rearmed() bool { return d.deadline.rearm(d.arm) }

func (d *direct) recv(fd uintptr) bool {
	d.recvNow(fd)
	if d.errno != syscall.EAGAIN {
		return true
	}
	d.errno = 0
	d.applyWaitDeadline()
	return false
}

func (d *direct) recvNow(fd uintptr) { d.n, d.errno = d.sys.Recv(fd, d.buf, syscall.MSG_DONTWAIT) }

// applyWaitDeadline calls onWait for a deadline, once for each Read or Write. A Read that wakes early, because its
// deadline has moved, and waits again must not ask for another deadline.
func (d *direct) applyWaitDeadline() {
	if d.onWait == nil || d.waitCalled {
		return
	}
	d.waitCalled = true
	if until := d.onWait(); !until.IsZero() {
		d.hasWaitDeadline = true
		d.deadline.set(until, d.arm)
	}
	if d.interrupted.Load() {
		d.hasWaitDeadline = true
		d.deadline.set(past, d.arm)
	}
}

// readNow reads bytes that have arrived. If there are none, it returns the error ifEmpty.
func (d *direct) readNow(p []byte, ifEmpty error) (int, error) {
	if d.raw == nil {
		return 0, ifEmpty
	}
	d.buf, d.n, d.errno = p, 0, 0
	err := d.raw.Control(d.recvNowFunc)
	if d.errno == syscall.EAGAIN {
		d.buf = nil
		return 0, ifEmpty
	}
	return d.received(err)
}

func (d *direct) send(fd uintptr) bool {
	done := d.sendNow(fd)
	if !done {
		d.applyWaitDeadline()
	}
	return done
}

// sendNow sends as many bytes of buf as the socket takes without waiting. It returns false if the
// socket takes no more.
func (d *direct) sendNow(fd uintptr) (done bool) {
	for d.n < len(d.buf) {
		n, errno := d.sys.Send(fd, d.buf[d.n:])
		switch errno {
		case 0:
			d.n += n
		case syscall.EAGAIN:
			return false
		default:
			d.errno = errno
			return true
		}
	}
	return true
}

func (d *direct) read(p []byte) (int, error) {
	if d.raw == nil {
		d.applyWaitDeadline()
		return d.conn.Read(p)
	}
	d.buf, d.n, d.errno = p, 0, 0
	return d.received(d.raw.Read(d.waitingCall))
}

// received returns the result of recv; err says why recv was not called.
func (d *direct) received(err error) (int, error) {
	d.buf = nil
	switch {
	case err != nil:
		return 0, err
	case d.errno != 0:
		return 0, opError("read", "recvfrom", d.errno)
	case d.n == 0:
		return 0, io.EOF
	}
	return d.n, nil
}

// write returns how many bytes of p the kernel took, even if it fails.
func (d *direct) write(p []byte) (int, error) {
	if d.raw == nil {
		d.applyWaitDeadline()
		return d.conn.Write(p)
	}
	d.buf, d.n, d.errno = p, 0, 0
	return d.sent(d.raw.Write(d.waitingCall))
}

// sent returns the result of sendNow; err says why sendNow was not called again.
func (d *direct) sent(err error) (int, error) {
	d.buf = nil
	if err == nil && d.errno != 0 {
		err = opError("write", "sendto", d.errno)
	}
	return d.n, err
}

func opError(op, call string, errno syscall.Errno) error {
	return &net.OpError{Op: op, Net: "socket", Err: os.NewSyscallError(call, errno)}
}
