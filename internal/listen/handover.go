//go:build linux

package listen

import (
	"encoding/json"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// handover is a process's part in the row of processes that have one traffic
// socket. They meet at an abstract unix socket, the door, whose name is made of
// the address: it lies in the network namespace, as ports do, belongs to the
// processes that have it open, and is gone with them.
//
//	first process        binds the door, and the sockets
//	next process         finds the door taken, connects, is sent the sockets and the door
//	                     keeps the connection: its end says that this process has gone
//	                     writes a byte once it serves
//	process before it    leaves operators to the next one, if that has its admin socket;
//	                     once it drains, leaves new connections to it too;
//	                     takes all that back where the next one dies
//
// A process does not open the door while the one after it lives, so that a third
// meets the second. Only processes of one user hand over to each other.
type handover struct {
	log    *zap.Logger
	name   string
	door   *net.UnixListener
	before *net.UnixConn // to the process before this one; nil for the first
	admin  bool          // that one's admin socket was taken over, too

	mu         sync.Mutex // guards the fields below
	sockets    *Sockets
	after      *net.UnixConn // to the process after this one
	serves     byte          // what the process after this one serves; 0 for nothing
	succession func(bool)    // nil until this process serves
	draining   bool
	left       bool
	ended      chan struct{} // closed when the goroutine of start has ended; nil before
}

// What a process writes to the one before it.
const (
	servesTraffic byte = 1 + iota
	servesBoth
)

// handedSocket says which socket a descriptor of the message is; they come in the
// same order.
type handedSocket struct{ Name, Network, Address string }

// start opens the door to processes that come after.
func (h *handover) start(s *Sockets) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sockets, h.ended = s, make(chan struct{})
	go h.run(h.ended)
}

// run is started by start, and ended by leave.
func (h *handover) run(ended chan struct{}) {
	defer close(ended)
	for {
		c, err := h.door.AcceptUnix()
		if err != nil {
			return
		}
		h.attend(c)
	}
}

// attend sends the sockets to the process at the other end, and waits for its
// end.
func (h *handover) attend(c *net.UnixConn) {
	defer c.Close() //nolint:errcheck // nothing is left to be done about it
	if err := h.send(c); err != nil {
		h.log.Warn("the sockets could not be handed over", zap.Error(err))
		return
	}
	var b [1]byte
	for {
		_, err := c.Read(b[:])
		if err != nil {
			b[0] = 0
		}
		h.succeeded(b[0])
		if err != nil {
			return
		}
	}
}

func (h *handover) send(c *net.UnixConn) error {
	if err := sameUser(c); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.left {
		return net.ErrClosed
	}
	s := h.sockets
	sockets := []handedSocket{
		{doorSocket, "unix", h.name},
		{s.Traffic.options.Name, s.Traffic.options.Network, s.Traffic.options.Address},
		{s.Admin.options.Name, s.Admin.options.Network, s.Admin.options.Address},
	}
	text, err := json.Marshal(sockets)
	if err != nil {
		return err
	}
	c.SetWriteDeadline(time.Now().Add(takeOverWithin)) //nolint:errcheck // a closed socket fails the write
	h.after = c
	return withFDs([]syscall.Conn{h.door, s.Traffic.socket, s.Admin.socket}, nil, func(fds []int) error {
		_, _, err := c.WriteMsgUnix(text, unix.UnixRights(fds...), nil)
		return err
	})
}

// withFDs calls f with the descriptors of conns, none of which closes meanwhile.
func withFDs(conns []syscall.Conn, fds []int, f func([]int) error) error {
	if len(conns) == 0 {
		return f(fds)
	}
	raw, err := conns[0].SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) { err = withFDs(conns[1:], append(fds, int(fd)), f) })
	return errors.Join(controlErr, err)
}

// succeeded is told what the process after this one serves; 0 when it has gone.
func (h *handover) succeeded(serves byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.serves
	if serves == 0 {
		h.after = nil
	}
	if serves == was || h.left {
		return
	}
	h.serves = serves
	if serves != 0 {
		h.log.Info("another process has taken over; this one accepts on until it is stopped")
	} else {
		h.log.Warn("the process that had taken over has gone; this one goes on")
	}
	h.pauseLocked()
	if h.succession != nil && (serves == servesBoth || was == servesBoth) {
		h.succession(serves == servesBoth)
	}
}

// pauseLocked leaves to the process after this one what that is to accept.
func (h *handover) pauseLocked() {
	h.sockets.Admin.pause(h.serves == servesBoth)
	h.sockets.Traffic.pause(h.serves != 0 && h.draining)
}

func (h *handover) serving(onSuccession func(bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.succession = onSuccession
	if h.serves == servesBoth {
		onSuccession(true)
	}
	if h.before == nil {
		return
	}
	serves := servesTraffic
	if h.admin {
		serves = servesBoth
	}
	h.before.Write([]byte{serves}) //nolint:errcheck // then that process has gone
}

func (h *handover) drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
	h.pauseLocked()
}

// leave closes the door on this process's side. last says that no other process
// has it; it stays shut to all until release is called.
func (h *handover) leave() (last bool, release func()) {
	h.mu.Lock()
	h.left = true
	h.door.Close() //nolint:errcheck // its end is all that matters
	for _, c := range []*net.UnixConn{h.before, h.after} {
		if c != nil {
			c.Close() //nolint:errcheck // as above
		}
	}
	ended := h.ended
	h.mu.Unlock()
	if ended != nil {
		<-ended
	}
	door, err := net.ListenUnix("unix", &net.UnixAddr{Name: h.name, Net: "unix"})
	if err != nil {
		return false, func() {}
	}
	return true, func() { door.Close() } //nolint:errcheck // as above
}
