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

	"go.uber.org/zap"

	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/socket"
)

// Listener is one listening socket. Its Accept returns a *net.TCPConn or
// *net.UnixConn, or a *Proxied for a peer named in Trust.
type Listener struct {
	options Options
	socket  listenSocket
	addr    net.Addr
	file    *socketFile // removed by the last process that has the socket; nil for TCP

	proxy   atomic.Pointer[proxyProtocol] // nil = no PROXY headers
	headers proxyErrors
	failed  atomic.Uint64 // failed accept calls that were repeated
	log     *zap.Logger
	logged  atomic.Pointer[time.Time] // when a failed accept call was last logged; nil = never

	mu     sync.Mutex    // guards the fields below
	paused chan struct{} // closed when the pause ends; nil if not paused
	queued []net.Conn    // connections that endAccepting took from the kernel's queue
	closed bool
}

// listenSocket is *net.TCPListener or *net.UnixListener.
type listenSocket interface {
	net.Listener
	syscall.Conn
	SetDeadline(time.Time) error
}

// withFDs calls f with the descriptors of conns, which stay open during the call.
func withFDs(f func(fds ...int) error, conns ...syscall.Conn) error {
	if len(conns) == 0 {
		return f()
	}
	raw, err := conns[0].SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) {
		err = withFDs(func(fds ...int) error { return f(append([]int{int(fd)}, fds...)...) }, conns[1:]...)
	})
	return errors.Join(controlErr, err)
}

type proxyProtocol struct {
	trusted []netip.Prefix
	timeout time.Duration
}

// Trust sets which peers must begin a connection with a PROXY header, and within which timeout. All peers of a Unix
// socket must. It applies to connections that are accepted from now on.
func (l *Listener) Trust(peers []netip.Prefix, timeout time.Duration) {
	l.proxy.Store(&proxyProtocol{peers, timeout})
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.addr }

// Accept implements net.Listener. It fails only if the socket cannot be used any more. After
// Sockets.CloseTraffic it first returns the connections that were queued.
func (l *Listener) Accept() (net.Conn, error) {
	wait, freed := time.Duration(0), false
	for {
		c, err := l.socket.Accept()
		switch {
		case err == nil:
			return l.accepted(c), nil
		case errors.Is(err, net.ErrClosed):
			if c := l.takeQueued(); c != nil {
				return l.accepted(c), nil
			}
			return nil, err
		case errors.Is(err, os.ErrDeadlineExceeded):
			l.awaitResume()
		case isPermanent(err):
			return nil, err
		case !freed && l.options.FreeFile != nil && l.options.FreeFile(err):
			freed = true
		default:
			l.failed.Add(1)
			l.logFailure(err, time.Now())
			wait = min(max(2*wait, acceptWaitMin), acceptWaitMax)
			time.Sleep(wait)
			freed = false
		}
	}
}

// logEvery is the shortest time between two log lines of a listener about failed accept calls.
const logEvery = time.Minute

func (l *Listener) logFailure(err error, now time.Time) {
	if last := l.logged.Load(); last != nil && now.Sub(*last) < logEvery {
		return
	}
	l.logged.Store(&now)
	l.log.Warn("a connection was not accepted, and may wait in the kernel; with too many open files, raise ulimit -n or lower server.max_connections; see adbuffer_accept_errors_total",
		zap.String("listener", l.options.Name), zap.Error(err))
}

// After a failed call, Accept waits before it tries again. The wait doubles each time.
const (
	acceptWaitMin = 5 * time.Millisecond
	acceptWaitMax = time.Second
)

// isPermanent reports whether accept(2) failed because of the listening socket itself. Other errors are temporary:
// file descriptors or memory are exhausted, a firewall forbids a connection, or a connection has failed in the queue.
func isPermanent(err error) bool {
	return errors.Is(err, syscall.EBADF) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSOCK)
}

func (l *Listener) accepted(c net.Conn) net.Conn {
	p := l.proxy.Load()
	if p == nil {
		return c
	}
	if peer := socket.PeerOf(c); peer.IsValid() && !header.Trusted(peer, p.trusted) {
		return c // a PROXY header of this peer would be a malformed request
	}
	return &Proxied{Conn: c, timeout: p.timeout, refused: &l.headers}
}

// pause(true) makes Accept wait, so that another process with this socket accepts; an Accept that has begun may still
// return a connection. pause(false) ends that.
func (l *Listener) pause(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !on {
		l.resumeLocked()
	} else if l.paused == nil && !l.closed {
		l.paused = make(chan struct{})
		l.socket.SetDeadline(time.Unix(1, 0))
	}
}

func (l *Listener) resumeLocked() {
	if l.paused != nil {
		l.socket.SetDeadline(time.Time{})
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

// Close implements net.Listener. Queued connections stay for other processes that have
// this socket, and so does the file of a unix socket; see Sockets.CloseTraffic. It may
// be called more than once.
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

// endAccepting closes the socket. last says that no other process has the socket: then its file is removed, and the
// kernel would reset the connections in its queue. serves says that the caller calls Accept until it fails: then
// endAccepting takes the connections out of the queue, for Accept to return them, unless a next process accepts from
// the queue.
func (l *Listener) endAccepting(last, serves bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if serves && (last || l.paused == nil) {
		l.queued = acceptQueued(l.socket)
	}
	l.closeLocked()
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

// maxQueued bounds how many connections acceptQueued accepts; it is Linux's default backlog.
const maxQueued = 4096

// acceptQueued accepts all connections in the queue, without waiting for more.
func acceptQueued(s listenSocket) (all []net.Conn) {
	raw, err := s.SyscallConn()
	if err != nil {
		return nil
	}
	raw.Control(func(fd uintptr) {
		for len(all) < maxQueued {
			n, _, err := syscall.Accept(int(fd)) // does not block: the runtime set O_NONBLOCK
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
			f.Close()
		}
	})
	return all
}
