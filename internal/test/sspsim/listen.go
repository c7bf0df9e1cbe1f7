package sspsim

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// gate holds the port of an SSP. In all states the keeper, which does not listen, is bound to it too, so that
// no other process can listen on it:
//
//	open       listener accepts connections
//	refusing   no socket listens: dials get ECONNREFUSED
//	blackHole  listener accepts nothing, and a connection of our own fills its backlog of 0: SYNs are dropped
type gate struct {
	keeper *net.TCPListener
	serve  func(*net.TCPListener) // accepts connections until the listener closes

	// SSP.setMu guards these fields.
	state    gateState
	listener *net.TCPListener // nil while refusing
	plug     net.Conn         // fills the backlog in blackHole
}

type gateState uint8

const (
	gateRefusing gateState = iota
	gateOpen
	gateBlackHole
	gateClosed
)

// openGate binds addr, which no other process may listen on. The gate refuses until the first set.
func openGate(addr string, serve func(*net.TCPListener)) (*gate, error) {
	// This listener sets no SO_REUSEPORT, so a port that is in use gives an error. The kernel would take a port
	// that it has chosen itself from a socket that ends listening. So the keeper names the port.
	first, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer first.Close()
	err = control(first.(*net.TCPListener), sharePort)
	if err != nil {
		return nil, err
	}
	keeper, err := listenShared(first.Addr().String())
	if err != nil {
		return nil, err
	}
	return &gate{keeper: keeper, serve: serve}, control(keeper, func(fd int) error { return unix.Shutdown(fd, unix.SHUT_RD) })
}

// sharePort lets the sockets of the gate bind one port. With SO_REUSEADDR, another socket could take it from
// the keeper.
func sharePort(fd int) error {
	return errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 0),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
}

func listenShared(addr string) (*net.TCPListener, error) {
	shared := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error { return controlRaw(raw, sharePort) }}
	ln, err := shared.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	return ln.(*net.TCPListener), nil
}

func control(ln *net.TCPListener, do func(fd int) error) error {
	raw, err := ln.SyscallConn()
	if err != nil {
		return err
	}
	return controlRaw(raw, do)
}

func controlRaw(raw syscall.RawConn, do func(fd int) error) error {
	var err error
	rawErr := raw.Control(func(fd uintptr) { err = do(int(fd)) })
	return errors.Join(rawErr, err)
}

// set changes the gate to gateOpen, gateRefusing or gateBlackHole.
func (g *gate) set(state gateState) error {
	if state == g.state {
		return nil
	}
	g.refuse()
	if state == gateRefusing {
		return nil
	}
	ln, err := listenShared(g.keeper.Addr().String())
	if err == nil {
		// Accepted connections inherit it. Otherwise their TIME-WAIT keeps the port from the next process.
		err = control(ln, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
	}
	if err != nil {
		return err
	}
	g.state, g.listener = state, ln
	if state == gateOpen {
		g.serve(ln)
		return nil
	}
	err = control(ln, func(fd int) error { return unix.Listen(fd, 0) }) // Linux still queues one connection
	// If a client's dial came first, the queue is already full.
	g.plug, _ = net.DialTimeout("tcp", ln.Addr().String(), 200*time.Millisecond)
	return err
}

// refuse ends listening.
func (g *gate) refuse() {
	if g.listener != nil {
		g.listener.Close()
	}
	if g.plug != nil {
		g.plug.Close()
	}
	g.state, g.listener, g.plug = gateRefusing, nil, nil
}

func (g *gate) close() {
	g.refuse()
	g.keeper.Close()
	g.state = gateClosed
}
