package socket

import (
	"io"
	"net"
	"os"
	"syscall"
)

// direct is one direction of a socket whose system calls do not tell the Go
// scheduler: on a socket that does not block they need not, and recvfrom(2) and
// sendto(2) take a shorter way through the kernel than read(2) and write(2).
// Waiting for the socket is left to the runtime's poller, as ever.
//
// One goroutine uses it at a time. call is made once, so that a read or write
// costs no allocation.
type direct struct {
	conn  net.Conn
	raw   syscall.RawConn // nil where conn has no file descriptor: a pipe in a test
	wait  func()          // told before a wait, or nil
	told  bool            // wait has been told in the Read or Write under way
	call  func(fd uintptr) bool
	buf   []byte
	n     int
	errno syscall.Errno
}

func (d *direct) recv(fd uintptr) bool {
	for {
		d.n, d.errno = recvfrom(fd, d.buf, 0)
		switch d.errno {
		case syscall.EINTR:
		case syscall.EAGAIN:
			d.errno = 0
			d.waits()
			return false
		default:
			return true
		}
	}
}

// waits tells wait, once a Read or Write: one that wakes early and goes on
// waiting, since its deadline has moved, must not move it again.
func (d *direct) waits() {
	if d.wait != nil && !d.told {
		d.told = true
		d.wait()
	}
}

func (d *direct) send(fd uintptr) bool {
	for d.n < len(d.buf) {
		n, errno := sendto(fd, d.buf[d.n:])
		switch errno {
		case 0:
			d.n += n
		case syscall.EINTR:
		case syscall.EAGAIN:
			d.waits()
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
		d.waits()
		return d.conn.Read(p)
	}
	d.buf, d.n, d.errno = p, 0, 0
	err := d.raw.Read(d.call)
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

// write returns how many bytes of p the kernel took, also where it fails.
func (d *direct) write(p []byte) (int, error) {
	if d.raw == nil {
		d.waits()
		return d.conn.Write(p)
	}
	d.buf, d.n, d.errno = p, 0, 0
	err := d.raw.Write(d.call)
	d.buf = nil
	if err == nil && d.errno != 0 {
		err = opError("write", "sendto", d.errno)
	}
	return d.n, err
}

func opError(op, call string, errno syscall.Errno) error {
	return &net.OpError{Op: op, Net: "socket", Err: os.NewSyscallError(call, errno)}
}
