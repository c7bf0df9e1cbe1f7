//go:build linux

package listen

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
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
//	                     writes a byte once it serves; the one before pauses its admin listener
//
// A process does not open the door while the one after it lives, so that a third
// meets the second. Only processes of one user hand over to each other.
type handover struct {
	log    *zap.Logger
	name   string
	door   *net.UnixListener
	before *net.UnixConn // to the process before this one; nil for the first

	mu         sync.Mutex // guards the fields below
	sockets    *Sockets
	after      *net.UnixConn // to the process after this one
	serves     bool          // the process after this one serves
	succession func(bool)    // nil until this process serves
	left       bool
	ended      chan struct{} // closed when the goroutine of start has ended; nil before
}

const (
	// takeOverWithin bounds the wait for the process before; it needs to do
	// nothing but send.
	takeOverWithin = 3 * time.Second
	// takeOverAgain is the pause between tries, where that process is starting
	// or ending.
	takeOverAgain  = 10 * time.Millisecond
	maxHandedBytes = 4096
	maxHandedFiles = 8
	doorSocket     = "door"
)

// handedSocket says which socket a descriptor of the message is; they come in the
// same order.
type handedSocket struct{ Name, Network, Address string }

// takeOver takes the sockets from the process that has the door, or takes the
// door where none has. It returns neither where the address needs no door.
func takeOver(log *zap.Logger, traffic, admin Options) (*handover, map[string]*Listener, error) {
	name, ok := doorName(traffic)
	if !ok {
		return nil, nil, nil
	}
	h := &handover{log: log, name: name}
	var last error
	for by := time.Now().Add(takeOverWithin); time.Now().Before(by); time.Sleep(takeOverAgain) {
		var err error
		if h.door, err = net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"}); err == nil {
			return h, nil, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, nil, err
		}
		given, err := h.ask(by, traffic, admin)
		if err == nil {
			log.Info("taking over from the process that listens", zap.Int("sockets", len(given)))
			return h, given, nil
		}
		last = err
	}
	return nil, nil, last
}

// doorName is the door's name; false for a port that nobody can know before.
func doorName(o Options) (string, bool) {
	address := o.Address
	if o.Network != "unix" {
		a, err := net.ResolveTCPAddr(o.Network, o.Address)
		if err != nil || a.Port == 0 {
			return "", false // Listen will say what is wrong
		}
		address = canonical(a)
	}
	sum := sha256.Sum256([]byte(o.Network + " " + address))
	return "@adbuffer-" + hex.EncodeToString(sum[:16]), true
}

// canonical writes every wildcard address in the same way; Go listens on all
// interfaces for each of them.
func canonical(a *net.TCPAddr) string {
	if len(a.IP) == 0 || a.IP.IsUnspecified() {
		return (&net.TCPAddr{Port: a.Port}).String()
	}
	return a.String()
}

// ask has the process at the door send its sockets.
func (h *handover) ask(by time.Time, traffic, admin Options) (map[string]*Listener, error) {
	d := net.Dialer{Deadline: by}
	c, err := d.Dial("unix", h.name)
	if err != nil {
		return nil, err
	}
	conn := c.(*net.UnixConn)
	given, err := h.receive(conn, by, traffic, admin)
	if err != nil {
		conn.Close() //nolint:errcheck // the error above matters
		return nil, err
	}
	conn.SetDeadline(time.Time{}) //nolint:errcheck // a closed socket fails the write
	h.before = conn
	return given, nil
}

func (h *handover) receive(c *net.UnixConn, by time.Time, wanted ...Options) (given map[string]*Listener, err error) {
	if err := sameUser(c); err != nil {
		return nil, err
	}
	c.SetDeadline(by) //nolint:errcheck // as above
	text, rights := make([]byte, maxHandedBytes), make([]byte, unix.CmsgSpace(4*maxHandedFiles))
	n, rn, _, _, err := c.ReadMsgUnix(text, rights)
	if err != nil {
		return nil, err
	}
	files, err := filesOf(rights[:rn])
	defer func() {
		for _, f := range files {
			f.Close() //nolint:errcheck // listeners have descriptors of their own
		}
		if err != nil {
			closeAll(given)
		}
	}()
	var sockets []handedSocket
	switch {
	case err != nil:
		return nil, err
	case n == 0:
		return nil, errors.New("the process that listens is ending")
	case json.Unmarshal(text[:n], &sockets) != nil || len(sockets) != len(files):
		return nil, errors.New("the process that listens sent something else than its sockets")
	}
	given = make(map[string]*Listener)
	for i, s := range sockets {
		l, err := fromFile(files[i])
		if err != nil {
			return given, fmt.Errorf("socket %q of the process that listens: %w", s.Name, err)
		}
		if s.Name == doorSocket {
			h.door, _ = l.(*net.UnixListener)
			continue
		}
		if err := keep(given, s, l, wanted); err != nil {
			return given, err
		}
	}
	if h.door == nil || given[wanted[0].Name] == nil {
		return given, errors.New("the process that listens sent another socket than that of " + wanted[0].Key)
	}
	return given, nil
}

// keep puts l into given where it is what was wanted, and closes it otherwise:
// the process before may have an admin listener elsewhere.
func keep(given map[string]*Listener, s handedSocket, l socket, wanted []Options) error {
	for _, o := range wanted {
		if s.Name != o.Name || s.Network != o.Network || given[o.Name] != nil {
			continue
		}
		if o.Network == "unix" && s.Address == o.Address {
			given[o.Name] = newUnix(o, l)
			return nil
		}
		want, err := net.ResolveTCPAddr("tcp", o.Address)
		if is, ok := l.Addr().(*net.TCPAddr); ok && err == nil && canonical(is) == canonical(want) {
			given[o.Name] = &Listener{options: o, socket: l, addr: l.Addr()}
			return nil
		}
	}
	return l.Close()
}

func closeAll(given map[string]*Listener) {
	for _, l := range given {
		l.Close() //nolint:errcheck // they are not used
	}
}

func filesOf(rights []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // something else than descriptors
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), ""))
		}
	}
	return files, nil
}

// sameUser refuses a process of another user at the other end.
func sameUser(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	if controlErr := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); controlErr != nil {
		return controlErr
	}
	if err != nil {
		return err
	}
	if int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("the process at the other end belongs to user %d, this one to %d", peer.Uid, os.Geteuid())
	}
	return nil
}

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
		h.succeeded(err == nil)
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

// succeeded is told whether the process after this one serves.
func (h *handover) succeeded(serves bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !serves {
		h.after = nil
	}
	if serves == h.serves || h.left {
		return
	}
	h.serves = serves
	if serves {
		h.log.Info("another process has taken over; this one accepts on until it is stopped, and answers no operators")
		h.sockets.Admin.Pause()
	} else {
		h.log.Warn("the process that had taken over has gone; this one goes on")
		h.sockets.Admin.Resume()
	}
	if h.succession != nil {
		h.succession(serves)
	}
}

func (h *handover) serving(onSuccession func(bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.succession = onSuccession
	if h.serves {
		onSuccession(true)
	}
	if h.before != nil {
		h.before.Write([]byte{1}) //nolint:errcheck // then that process has gone
	}
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
