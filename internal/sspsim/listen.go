package sspsim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// gate is the listening side of an SSP. It keeps its port in all states, because a socket that is
// bound but never listens reserves it. Its states are:
//
//	open       a listener and its accept loop: dials succeed
//	refusing   no listener: dials get ECONNREFUSED
//	blackHole  a listener that is never accepted from, with a backlog of 0 that a
//	           connection of our own fills: SYNs are dropped
type gate struct {
	addr   *net.TCPAddr // with the chosen port
	holder int          // file descriptor of the socket that reserves the port
	serve  func(net.Listener)

	// SSP.setMu guards these fields.
	state gateState
	ln    net.Listener
	plug  net.Conn // fills the accept queue in blackHole
}

type gateState uint8

const (
	gateClosed gateState = iota
	gateOpen
	gateRefusing
	gateBlackHole
)

// openGate binds addr, which no other process may listen on. It accepts no connection before the
// first set.
func openGate(addr string, serve func(net.Listener)) (*gate, error) {
	// The first listener sets no SO_REUSEPORT, so a port that is in use gives an error.
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	raw, err := ln.(*net.TCPListener).SyscallConn()
	if err != nil {
		return nil, err
	}
	if err := sharePort(raw); err != nil {
		return nil, err
	}
	g := &gate{addr: ln.Addr().(*net.TCPAddr), serve: serve, state: gateRefusing}
	g.holder, err = holdPort(g.addr)
	if err != nil {
		return nil, fmt.Errorf("holding port %d: %w", g.addr.Port, err)
	}
	return g, nil
}

// sharePort sets SO_REUSEPORT. Sockets of one user that all have it may bind the same port.
func sharePort(raw syscall.RawConn) error {
	var err error
	ctlErr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	})
	return errors.Join(ctlErr, err)
}

// listenShared listens on a port that holdPort reserves.
func listenShared(addr *net.TCPAddr) (net.Listener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error { return sharePort(raw) }}
	return lc.Listen(context.Background(), "tcp", addr.String())
}

// holdPort binds a socket to addr and never listens on it.
func holdPort(addr *net.TCPAddr) (int, error) {
	var sa unix.Sockaddr
	family := unix.AF_INET
	if v4 := addr.IP.To4(); v4 != nil {
		sa = &unix.SockaddrInet4{Port: addr.Port, Addr: [4]byte(v4)}
	} else {
		family, sa = unix.AF_INET6, &unix.SockaddrInet6{Port: addr.Port, Addr: [16]byte(addr.IP.To16())}
	}
	syscall.ForkLock.RLock()
	fd, err := unix.Socket(family, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return -1, err
	}
	for _, step := range []func() error{
		func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) },
		// With it, bind succeeds although connections of an earlier listener are in TIME_WAIT.
		func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) },
		func() error { return unix.Bind(fd, sa) },
		// Without it, a socket with SO_REUSEADDR alone could take the port.
		func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 0) },
	} {
		if err := step(); err != nil {
			unix.Close(fd)
			return -1, err
		}
	}
	return fd, nil
}

// set changes the gate to state.
func (g *gate) set(state gateState) error {
	if state == g.state {
		return nil
	}
	g.refuse()
	if state == gateOpen || state == gateBlackHole {
		ln, err := listenShared(g.addr)
		if err != nil {
			return fmt.Errorf("listening on %v again: %w", g.addr, err)
		}
		g.ln = ln
	}
	g.state = state
	switch state {
	case gateOpen:
		g.serve(g.ln)
	case gateBlackHole:
		return g.fill()
	}
	return nil
}

// fill fills the accept queue of the listener.
func (g *gate) fill() error {
	raw, err := g.ln.(*net.TCPListener).SyscallConn()
	if err != nil {
		return err
	}
	// listen(2) on a listening socket changes its backlog. With a backlog of 0 Linux queues one
	// connection and drops later SYNs.
	ctlErr := raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), 0) })
	if err := errors.Join(ctlErr, err); err != nil {
		return fmt.Errorf("shrinking the accept queue of %v: %w", g.addr, err)
	}
	// If a client's dial came first, the queue is already full.
	g.plug, _ = net.DialTimeout("tcp", g.addr.String(), 200*time.Millisecond)
	return nil
}

func (g *gate) refuse() {
	if g.ln != nil {
		g.ln.Close()
		g.ln = nil
	}
	if g.plug != nil {
		g.plug.Close()
		g.plug = nil
	}
	g.state = gateRefusing
}

func (g *gate) close() {
	g.refuse()
	unix.Close(g.holder)
	g.state = gateClosed
}
