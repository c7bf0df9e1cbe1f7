// Package listen opens the sockets that clients and operators connect to, hands
// them to the process that comes after, and proves who listens by certificates.
//
// # Handing over
//
// With server.reuse_port a new process does not bind beside the old one: it asks
// it for its sockets, and both accept from the same queues. That loses nothing,
// whereas two sockets with SO_REUSEPORT do: each has a queue of its own, and when
// the old one is closed the kernel resets what waits in it and forgets handshakes
// under way. (net.ipv4.tcp_migrate_req would move them; it is off by default and
// takes an administrator. A BPF program on the group could steer new connections
// away before, but not a handshake that has begun.) A queue that two processes
// own is closed with the last of them, whichever that is and however it dies.
// SO_REUSEPORT is set all the same, for a process that gets no answer.
//
// Sockets from systemd are shared in the same way, and systemd is their owner.
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
	Key     string // of the configuration, for messages: "server.listen"
	Network string // "tcp" or "unix"
	Address string // host:port, or a path
	Mode    os.FileMode
	// ReusePort has the socket shared with the process that comes after, and
	// taken from the one before.
	ReusePort bool
}

// Sockets are what the process listens on.
type Sockets struct {
	Traffic, Admin *Listener
	Passed         bool      // by systemd: the configured addresses do not count
	handover       *handover // nil where sockets are not handed over
}

// Open opens both sockets: those that systemd has passed, those of the process
// before this one, or new ones.
func Open(traffic, admin Options, log *zap.Logger) (*Sockets, error) {
	given, err := activated(traffic, admin)
	if err != nil {
		return nil, err
	}
	s := &Sockets{Passed: given != nil}
	if given == nil && traffic.ReusePort {
		if s.handover, given, err = takeOver(log, traffic, admin); err != nil {
			log.Warn("the process that listens there gave no answer; this one binds beside it, and connections may be lost when that one stops", zap.Error(err))
		}
	}
	if s.Traffic, err = open(traffic, given, log); err == nil {
		s.Admin, err = open(admin, given, log)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	if s.handover != nil {
		s.handover.start(s)
	}
	return s, nil
}

// open takes a listener from those given, or binds one.
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

// Serving says that connections are accepted from now on. The process before
// this one leaves operators to it then, if they share the admin socket.
// onSuccession is called when the process after this one does so (true), and when
// that has gone (false).
func (s *Sockets) Serving(onSuccession func(bool)) {
	if s.handover != nil {
		s.handover.serving(onSuccession)
	}
}

// BeginDrain leaves new connections to the process after this one, as long as
// there is one that serves.
func (s *Sockets) BeginDrain() {
	if s.handover != nil {
		s.handover.drain()
	}
}

// CloseTraffic ends accepting requests' connections, once Accept has returned
// those that are queued and that no other process is there for. The sockets are
// handed to no other process any more.
func (s *Sockets) CloseTraffic() {
	last, release := true, func() {}
	if s.handover != nil {
		last, release = s.handover.leave()
	}
	defer release()
	if s.Traffic != nil {
		s.Traffic.end(last)
	}
}

// Close closes what is open.
func (s *Sockets) Close() {
	s.CloseTraffic()
	if s.Admin != nil {
		s.Admin.Close() //nolint:errcheck // nothing is left to be done about it
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
		return nil, explain(err, o)
	}
	return &Listener{options: o, socket: l.(socket), addr: l.Addr()}, nil
}

// explain says what to do about a socket that cannot be bound.
func explain(err error, o Options) error {
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
	var call *os.SyscallError
	if errors.As(err, &call) {
		err = call.Err // the address has been named
	}
	return fmt.Errorf("%w: %s", err, advice)
}
