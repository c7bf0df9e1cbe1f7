package listen

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"adbuffer/internal/httpheader"
)

// Listener is one listening socket. Its Accept returns a *net.TCPConn or
// *net.UnixConn, or a *Proxied where Trust has asked for that.
type Listener struct {
	options Options
	socket  socket
	addr    net.Addr
	file    *socketFile // that goes with the last process that has the socket; nil for none

	proxy   atomic.Pointer[proxyProtocol] // nil = no PROXY headers
	headers proxyCounts
	failed  atomic.Uint64 // calls of Accept that had to be tried again

	mu     sync.Mutex    // guards the fields below
	paused chan struct{} // closed when the pause ends; nil for none
	queued []net.Conn    // what the kernel still held at the end
	closed bool
}

// socket is *net.TCPListener or *net.UnixListener.
type socket interface {
	net.Listener
	syscall.Conn
	SetDeadline(time.Time) error
}

type proxyProtocol struct {
	trusted []netip.Prefix
	timeout time.Duration
}

// Trust has connections of these peers start with a PROXY header, to be read
// within timeout, and those of every peer of a unix socket. It is for connections
// that are accepted from now on.
func (l *Listener) Trust(peers []netip.Prefix, timeout time.Duration) {
	l.proxy.Store(&proxyProtocol{peers, timeout})
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.addr }

// Accept implements net.Listener. It fails for good only after Close, and when it
// has returned what was queued then.
func (l *Listener) Accept() (net.Conn, error) {
	wait := time.Duration(0)
	for {
		c, err := l.socket.Accept()
		switch {
		case err == nil:
			return l.accepted(c), nil
		case isShortage(err):
			l.failed.Add(1)
			wait = min(max(2*wait, acceptWaitMin), acceptWaitMax)
			time.Sleep(wait)
		case errors.Is(err, net.ErrClosed):
			if c := l.takeQueued(); c != nil {
				return l.accepted(c), nil
			}
			return nil, err
		case errors.Is(err, os.ErrDeadlineExceeded):
			l.awaitResume()
		default:
			return nil, err
		}
	}
}

// After a shortage of files or memory, Accept waits this long before it tries
// again, doubling.
const (
	acceptWaitMin = 5 * time.Millisecond
	acceptWaitMax = time.Second
)

// isShortage reports whether accept(2) failed for want of something that may be
// there again soon.
func isShortage(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (l *Listener) accepted(c net.Conn) net.Conn {
	p := l.proxy.Load()
	if p == nil {
		return c
	}
	if peer := addrOf(c.RemoteAddr()); peer.IsValid() && !httpheader.Trusted(peer, p.trusted) {
		return c // a header would be a malformed request
	}
	return &Proxied{Conn: c, within: p.timeout, counts: &l.headers}
}

// pause leaves what comes to the other processes that have this socket, but for
// one connection that may be being accepted; pause(false) ends that.
func (l *Listener) pause(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !on {
		l.resumeLocked()
	} else if l.paused == nil && !l.closed {
		l.paused = make(chan struct{})
		l.socket.SetDeadline(time.Unix(1, 0)) //nolint:errcheck // it fails only where it is closed
	}
}

func (l *Listener) resumeLocked() {
	if l.paused != nil {
		l.socket.SetDeadline(time.Time{}) //nolint:errcheck // as above
		close(l.paused)
		l.paused = nil
	}
}

func (l *Listener) awaitResume() {
	l.mu.Lock()
	paused := l.paused
	l.mu.Unlock()
	if paused != nil {
		<-paused
	}
}

// Close implements net.Listener. What the kernel has queued stays for the other
// processes that have this socket, and the file of a unix socket stays too; see
// Sockets.CloseTraffic. It may be called more than once.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closeLocked()
}

func (l *Listener) closeLocked() error {
	if l.closed {
		return nil
	}
	l.closed = true
	err := l.socket.Close()
	l.resumeLocked()
	return err
}

// end closes the socket. Connections whose handshake the kernel has finished
// would be reset with it, unless another process has it: Accept returns them before
// it fails. Where they are not left to the process after this one they are taken in
// any case, since one that was started beside this one has a queue of its own. last
// says that no other process has the socket: its file goes.
func (l *Listener) end(last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if l.paused == nil {
		l.queued = acceptQueued(l.socket)
	}
	l.closeLocked() //nolint:errcheck // nothing is left to be done about it
	if last && l.file != nil {
		l.file.remove()
	}
}

func (l *Listener) takeQueued() net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queued) == 0 {
		return nil
	}
	c := l.queued[0]
	l.queued = l.queued[1:]
	return c
}

// maxQueued bounds what Close takes; Linux queues no more by default.
const maxQueued = 4096

// acceptQueued accepts all connections that wait now, and waits for none.
func acceptQueued(s socket) (all []net.Conn) {
	raw, err := s.SyscallConn()
	if err != nil {
		return nil
	}
	raw.Control(func(fd uintptr) { //nolint:errcheck // then it is closed already, and nothing is queued
		for len(all) < maxQueued {
			n, _, err := syscall.Accept(int(fd)) // which does not block: the runtime has made it so
			if errors.Is(err, syscall.EINTR) || errors.Is(err, syscall.ECONNABORTED) {
				continue
			}
			if err != nil {
				return
			}
			syscall.CloseOnExec(n)
			f := os.NewFile(uintptr(n), "")
			if c, err := net.FileConn(f); err == nil {
				all = append(all, c)
			}
			f.Close() //nolint:errcheck // the connection has a descriptor of its own
		}
	})
	return all
}
