// Package listen opens the sockets that clients and operators connect to, hands them
// over to the next process, and serves their TLS certificates.
//
// # Handing over
//
// With server.reuse_port a new process does not bind a socket of its own beside the old process's. It receives the
// old process's sockets, and both accept from the same queue, so no connection is lost. With two sockets, connections
// would be lost: each socket has its own queue, and when the old socket is closed, the kernel resets the connections
// in its queue and drops handshakes in progress. net.ipv4.tcp_migrate_req would move them, but it is off by default.
// A BPF program could steer new connections to the new socket, but not a handshake in progress. A shared queue closes
// with the last process that has it, even if a process is killed. SO_REUSEPORT is still set, for a process that
// cannot reach the old one.
//
// Sockets from systemd are shared in the same way; systemd owns them.
package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// Options say where to listen.
type Options struct {
	Name    string // "traffic" or "admin": systemd's FileDescriptorName
	Key     string // the config key, for messages: "server.listen"
	Network string // "tcp" or "unix"
	Address string // host:port, or a path
	Mode    os.FileMode
	// ReusePort shares the socket with the next process, and takes it over from the previous
	// process.
	ReusePort bool
	// FreeFile is called if accept fails with err. If err says that too many files are open, FreeFile may close a
	// file that is not needed now, and return true; then Accept tries again at once. It may be nil.
	FreeFile func(err error) bool
	// Certificates has the ticket keys to share with the next process; nil = the listener has no TLS, or does not
	// share ticket keys.
	Certificates *Certificates
}

// Sockets are the listening sockets of the process.
type Sockets struct {
	Traffic, Admin *Listener
	Passed         bool      // the sockets were passed by systemd, and the configured addresses are ignored
	handover       *handover // nil if sockets are not handed over
}

// Open opens both sockets. It uses the sockets that systemd has passed, or else the sockets of the previous process,
// or else binds new sockets.
func Open(traffic, admin Options, log *zap.Logger) (*Sockets, error) {
	given, err := activated(traffic, admin)
	if err != nil {
		return nil, err
	}
	s := &Sockets{Passed: given != nil}
	if given == nil && traffic.ReusePort {
		s.handover, given, err = takeOver(log, traffic, admin)
		if err != nil {
			log.Warn("the process that listens there did not respond; this one binds beside it, and connections may be lost when that one stops", zap.Error(err))
		}
	}
	s.Traffic, err = open(traffic, given, log)
	if err == nil {
		s.Admin, err = open(admin, given, log)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	s.Traffic.log, s.Admin.log = log, log
	if s.handover != nil {
		s.handover.start(s)
	}
	return s, nil
}

// open takes a listener from given, or binds one.
func open(o Options, given map[string]*Listener, log *zap.Logger) (l *Listener, err error) {
	if l := given[o.Name]; l != nil {
		return l, nil
	}
	if o.Network == "unix" {
		l, err = bindUnix(o, log)
	} else {
		l, err = bindTCP(o)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", o.Key, o.Address, err)
	}
	return l, nil
}

// Serving informs the previous process that this one accepts connections. The previous process then stops accepting
// on the admin socket, if both share it. onSuccession(true) is called when a next process has taken over both sockets
// in this way, and onSuccession(false) when that process has ended.
func (s *Sockets) Serving(onSuccession func(bool)) {
	if s.handover != nil {
		s.handover.serving(onSuccession)
	}
}

// BeginDrain stops accepting clients for as long as a next process serves.
func (s *Sockets) BeginDrain() {
	if s.handover != nil {
		s.handover.drain()
	}
}

// CloseTraffic closes the traffic socket. Before Accept fails, it returns the connections in the socket's queue,
// unless another process accepts them. From now on no process can take over.
func (s *Sockets) CloseTraffic() { s.closeTraffic(true) }

func (s *Sockets) closeTraffic(serves bool) {
	last, release := true, func() {}
	if s.handover != nil {
		last, release = s.handover.close()
	}
	defer release()
	if s.Traffic != nil {
		s.Traffic.endAccepting(last, serves)
	}
}

// Close closes both sockets. It leaves queued connections to other processes that have the sockets, since the caller
// no longer calls Accept.
func (s *Sockets) Close() {
	s.closeTraffic(false)
	if s.Admin != nil {
		s.Admin.Close()
	}
}

func bindTCP(o Options) (*Listener, error) {
	var c net.ListenConfig
	if o.ReusePort {
		c.Control = func(_, _ string, raw syscall.RawConn) error {
			var err error
			if controlErr := raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
			}); controlErr != nil {
				return controlErr
			}
			return os.NewSyscallError("setsockopt", err)
		}
	}
	l, err := c.Listen(context.Background(), o.Network, o.Address)
	if err != nil {
		return nil, withAdvice(err, o)
	}
	return &Listener{options: o, socket: l.(listenSocket), addr: l.Addr()}, nil
}

// withAdvice adds the usual cause of a failed bind to the error.
func withAdvice(err error, o Options) error {
	var advice string
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && o.ReusePort:
		advice = "a process without server.reuse_port, or of another user, listens there"
	case errors.Is(err, syscall.EADDRINUSE):
		advice = "another process listens there; one adbuffer takes over from another if both have server.reuse_port"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		advice = "no interface of this machine has the address"
	case errors.Is(err, syscall.EACCES):
		advice = "this user may not listen there; ports below 1024 need the capability CAP_NET_BIND_SERVICE"
	default:
		return err
	}
	if call, ok := errors.AsType[*os.SyscallError](err); ok {
		err = call.Err // the address has been named
	}
	return fmt.Errorf("%w: %s", err, advice)
}
