package sspsim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// gate is the listening socket of an SSP. It is bound to its port in all states:
//
//	open       connections are accepted
//	refusing   the socket does not listen: dials get ECONNREFUSED
//	blackHole  nothing is accepted, and a connection of our own fills the backlog of 0: SYNs are dropped
type gate struct {
	ln        *net.TCPListener // without a past deadline only while open
	accepting sync.Mutex       // held during Accept, and while set changes the socket

	// SSP.setMu guards these fields.
	state gateState
	plug  net.Conn // fills the backlog in blackHole
}

type gateState uint8

const (
	gateNew gateState = iota // before the first set: the socket listens, and nothing is accepted
	gateOpen
	gateRefusing
	gateBlackHole
	gateClosed
)

// backlog of an open gate. Linux lowers it to net.core.somaxconn.
const backlog = 1 << 16

// past ends the wait of an accept or a read.
var past = time.Unix(1, 0)

// openGate binds addr, which no other process may listen on. It accepts no connection before the
// first set.
func openGate(addr string) (*gate, error) {
	// This listener sets no SO_REUSEPORT, so a port that is in use gives an error. The kernel would take a port
	// that it has chosen itself from a socket that ends listening. So a second socket names the port.
	first, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer first.Close()
	sharePort := func(_, _ string, raw syscall.RawConn) error {
		return control(raw, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	}
	raw, err := first.(*net.TCPListener).SyscallConn()
	if err != nil {
		return nil, err
	}
	if err := sharePort("", "", raw); err != nil {
		return nil, err
	}
	shared := net.ListenConfig{Control: sharePort}
	ln, err := shared.Listen(context.Background(), "tcp", first.Addr().String())
	if err != nil {
		return nil, err
	}
	g := &gate{ln: ln.(*net.TCPListener)}
	return g, g.ln.SetDeadline(past)
}

func control(raw syscall.RawConn, do func(fd int) error) error {
	var err error
	ctlErr := raw.Control(func(fd uintptr) { err = do(int(fd)) })
	return errors.Join(ctlErr, err)
}

// accept returns the next connection. Its error is net.ErrClosed after close, and any other one in a state
// other than open.
func (g *gate) accept() (*net.TCPConn, error) {
	g.accepting.Lock()
	defer g.accepting.Unlock()
	return g.ln.AcceptTCP()
}

// set changes the gate to gateOpen, gateRefusing or gateBlackHole.
func (g *gate) set(state gateState) error {
	if state == g.state {
		return nil
	}
	_ = g.ln.SetDeadline(past)
	g.accepting.Lock()
	defer g.accepting.Unlock()
	g.unplug()
	raw, err := g.ln.SyscallConn()
	if err != nil {
		return err
	}
	err = control(raw, func(fd int) error {
		err := unix.Shutdown(fd, unix.SHUT_RD)
		if errors.Is(err, unix.ENOTCONN) { // it does not listen
			err = nil
		}
		// With SO_REUSEADDR, another socket could take the port.
		return errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 0))
	})
	g.state = gateRefusing
	if err != nil || state == gateRefusing {
		return err
	}
	queue := backlog
	if state == gateBlackHole {
		queue = 0 // Linux still queues one connection
	}
	err = control(raw, func(fd int) error {
		return errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Listen(fd, queue))
	})
	if err != nil {
		return fmt.Errorf("listening on %v again: %w", g.ln.Addr(), err)
	}
	g.state = state
	if state == gateBlackHole {
		// If a client's dial came first, the queue is already full.
		g.plug, _ = net.DialTimeout("tcp", g.ln.Addr().String(), 200*time.Millisecond)
		return nil
	}
	return g.ln.SetDeadline(time.Time{})
}

func (g *gate) unplug() {
	if g.plug != nil {
		g.plug.Close()
		g.plug = nil
	}
}

func (g *gate) close() {
	g.unplug()
	g.ln.Close()
	g.state = gateClosed
}
