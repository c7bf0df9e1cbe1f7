//go:build linux

package listen

import (
	"encoding/json"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// handover is the part of one process in a chain of processes that share the traffic socket. The processes meet at
// the meeting socket, an abstract Unix socket whose name is made from the listen address. It belongs to the network
// namespace, as ports do, and disappears with the last process that has it open.
//
//	first process        binds the meeting socket and the sockets.
//	next process         finds the meeting socket bound, connects to it, and receives all sockets.
//	                     Keeps the connection: when it closes, this process has ended.
//	                     Writes a byte when it serves.
//	previous process     stops accepting on the admin socket, if the next process has it.
//	                     Stops accepting clients when it drains.
//	                     Accepts on both again if the next process ends.
//
// A process accepts no connection at the meeting socket while the next process lives. So a third process meets the
// second process. All processes must belong to the same user.
type handover struct {
	log       *zap.Logger
	name      string
	meeting   *net.UnixListener
	previous  *net.UnixConn // connection to the previous process; nil for the first process
	tookAdmin bool          // the previous process's admin socket was taken over too

	mu         sync.Mutex // guards the fields below
	sockets    *Sockets
	next       *net.UnixConn // connection to the next process
	serves     byte          // the sockets that the next process serves; 0 for none
	succession func(bool)    // see Sockets.Serving; nil until this process serves
	draining   bool
	closed     bool
	ended      chan struct{} // closed when run has returned; nil before start
}

// Bytes that a process writes to the previous process.
const (
	servesTraffic byte = 1 + iota
	servesBoth
)

// handedSocket names one socket of the message. The descriptors come in the same order.
type handedSocket struct {
	Name, Network, Address string
	TicketKeys             []ticketKey `json:",omitempty"` // none for a listener without TLS
}

func (o *Options) handed() handedSocket {
	return handedSocket{o.Name, o.Network, o.Address, o.Certificates.handedKeys()}
}

// start lets the next process connect.
func (h *handover) start(s *Sockets) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sockets, h.ended = s, make(chan struct{})
	go h.run(h.ended)
}

// run is started by start and ended by close.
func (h *handover) run(ended chan struct{}) {
	defer close(ended)
	for {
		c, err := h.meeting.AcceptUnix()
		if err != nil {
			return
		}
		h.serveNext(c)
	}
}

// serveNext sends the sockets to the next process, and waits until that process ends.
func (h *handover) serveNext(c *net.UnixConn) {
	defer c.Close()
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
		h.setNextServes(b[0])
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
	s, closed := h.sockets, h.closed
	h.next = c
	h.mu.Unlock()
	if closed {
		return net.ErrClosed
	}
	sockets := []handedSocket{
		{Name: meetingSocket, Network: "unix", Address: h.name},
		s.Traffic.options.handed(),
		s.Admin.options.handed(),
	}
	text, err := json.Marshal(sockets)
	if err != nil {
		return err
	}
	c.SetWriteDeadline(time.Now().Add(takeOverTimeout))
	return withFDs(func(fds ...int) error {
		_, _, err := c.WriteMsgUnix(text, unix.UnixRights(fds...), nil)
		return err
	}, h.meeting, s.Traffic.socket, s.Admin.socket)
}

// setNextServes stores which sockets the next process serves, or 0 when that process has ended.
func (h *handover) setNextServes(serves byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.serves
	if serves == 0 {
		h.next = nil
	}
	if serves == was || h.closed {
		return
	}
	h.serves = serves
	if serves != 0 {
		h.log.Info("another process has taken over; this one accepts too until it is stopped")
	} else {
		h.log.Warn("the process that had taken over has ended; this one serves alone again")
	}
	h.pauseLocked()
	if h.succession != nil && (serves == servesBoth || was == servesBoth) {
		h.succession(serves == servesBoth)
	}
}

// pauseLocked stops accepting on the sockets on which the next process accepts.
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
	if h.previous == nil {
		return
	}
	serves := servesTraffic
	if h.tookAdmin {
		serves = servesBoth
	}
	h.previous.Write([]byte{serves}) //nolint:errcheck // an error means that the process has ended
}

func (h *handover) drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
	h.pauseLocked()
}

// close ends the part of this process. last says that no other process has the sockets. Then no process can start a
// hand-over until releaseName is called.
func (h *handover) close() (last bool, releaseName func()) {
	h.mu.Lock()
	h.closed = true
	h.meeting.Close()
	for _, c := range []*net.UnixConn{h.previous, h.next} {
		if c != nil {
			c.Close()
		}
	}
	ended := h.ended
	h.mu.Unlock()
	if ended != nil {
		<-ended
	}
	meeting, err := net.ListenUnix("unix", &net.UnixAddr{Name: h.name, Net: "unix"})
	if err != nil {
		return false, func() {}
	}
	return true, func() { meeting.Close() }
}
