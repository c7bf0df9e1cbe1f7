//go:build linux

package listen

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"adbuffer/internal/machine/configfile"
)

const (
	// takeOverTimeout bounds the wait for the previous process, which only has to send a message.
	takeOverTimeout = 3 * time.Second
	// takeOverRetry is the pause between attempts while the previous process starts or ends.
	takeOverRetry  = 10 * time.Millisecond
	maxHandedBytes = 4096
	maxHandedFiles = 8
	// meetingSocket names the meeting socket in the message.
	meetingSocket = "meeting"
)

// takeOver receives the sockets from the process that has the meeting socket. If no process has it, takeOver binds
// the meeting socket. It returns nil for an address that has no meeting socket.
func takeOver(log *zap.Logger, traffic, admin Options) (*handover, map[string]*Listener, error) {
	name, ok := meetingName(traffic)
	if !ok {
		return nil, nil, nil
	}
	h := &handover{log: log, name: name}
	var lastErr error
	for deadline := time.Now().Add(takeOverTimeout); time.Now().Before(deadline); time.Sleep(takeOverRetry) {
		var err error
		h.meeting, err = net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
		if err == nil {
			return h, nil, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, nil, err
		}
		given, err := h.ask(deadline, traffic, admin)
		if err == nil {
			log.Info("taking over from the process that listens", zap.Int("sockets", len(given)))
			return h, given, nil
		}
		lastErr = err
		if !errors.Is(err, errEnding) && !errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
	}
	return nil, nil, lastErr
}

// errEnding is returned while the previous process closes.
var errEnding = errors.New("the process that listens is ending")

// meetingName returns the name of the meeting socket. It returns false for an invalid address, and for port 0, whose
// real port is not known before. Containers that share a network namespace may have different folders with the same
// path. So the name for a Unix socket is made from the device and inode of its folder.
func meetingName(o Options) (string, bool) {
	var address string
	if o.Network == "unix" {
		info, err := os.Stat(filepath.Dir(o.Address))
		if err != nil {
			return "", false // bindUnix reports the error
		}
		id := configfile.FileIDOf(info)
		address = fmt.Sprintf("unix %d %d %s", id.Device, id.Inode, filepath.Base(o.Address))
	} else {
		a, err := net.ResolveTCPAddr(o.Network, o.Address)
		if err != nil || a.Port == 0 {
			return "", false // bindTCP reports the error, or chooses the port
		}
		address = "tcp " + canonical(a)
	}
	sum := sha256.Sum256([]byte(address))
	return "@adbuffer-" + hex.EncodeToString(sum[:16]), true
}

// canonical returns the address as text, and the same text for all wildcard addresses, since Go listens on all
// interfaces for each of them.
func canonical(a *net.TCPAddr) string {
	if len(a.IP) == 0 || a.IP.IsUnspecified() {
		return (&net.TCPAddr{Port: a.Port}).String()
	}
	return a.String()
}

// ask connects to the previous process, and receives its sockets.
func (h *handover) ask(deadline time.Time, traffic, admin Options) (map[string]*Listener, error) {
	d := net.Dialer{Deadline: deadline}
	c, err := d.Dial("unix", h.name)
	if err != nil {
		return nil, err
	}
	conn := c.(*net.UnixConn)
	given, err := h.receive(conn, deadline, traffic, admin)
	if err != nil {
		conn.Close()
		return nil, err
	}
	conn.SetDeadline(time.Time{})
	h.previous, h.tookAdmin = conn, given[admin.Name] != nil
	return given, nil
}

func (h *handover) receive(c *net.UnixConn, deadline time.Time, wanted ...Options) (given map[string]*Listener, err error) {
	if err := sameUser(c); err != nil {
		return nil, err
	}
	c.SetDeadline(deadline)
	text, rights := make([]byte, maxHandedBytes), make([]byte, unix.CmsgSpace(4*maxHandedFiles))
	n, rn, _, _, err := c.ReadMsgUnix(text, rights)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), err == nil && n == 0:
		return nil, errEnding
	case err != nil:
		return nil, err
	}
	files, err := filesOf(rights[:rn])
	var meeting *net.UnixListener
	defer func() {
		for _, f := range files {
			f.Close()
		}
		h.meeting = meeting
		if err != nil {
			closeAll(given)
			if meeting != nil {
				meeting.Close()
			}
		}
	}()
	var sockets []handedSocket
	switch {
	case err != nil:
		return nil, err
	case json.Unmarshal(text[:n], &sockets) != nil || len(sockets) != len(files):
		return nil, errors.New("the process that listens did not send its sockets")
	}
	given = make(map[string]*Listener)
	for i, s := range sockets {
		l, err := fromFile(files[i])
		if err != nil {
			return given, fmt.Errorf("socket %q of the process that listens: %w", s.Name, err)
		}
		if u, ok := l.(*net.UnixListener); ok && s.Name == meetingSocket && meeting == nil {
			meeting = u
			continue
		}
		if err := takeWanted(given, s, l, wanted); err != nil {
			return given, err
		}
	}
	if meeting == nil || given[wanted[0].Name] == nil {
		return given, errors.New("the process that listens sent another socket than that of " + wanted[0].Key)
	}
	return given, nil
}

// takeWanted puts l into given if it is one of the wanted sockets, and closes it otherwise. The previous
// process may have its admin listener at another address.
func takeWanted(given map[string]*Listener, s handedSocket, l listenSocket, wanted []Options) error {
	for _, o := range wanted {
		if s.Name != o.Name || s.Network != o.Network || given[o.Name] != nil {
			continue
		}
		if o.Network == "unix" { // the path is o.Address, since another path has another meeting socket
			given[o.Name] = newUnix(o, l)
			o.Certificates.adoptKeys(s.TicketKeys)
			return nil
		}
		want, err := net.ResolveTCPAddr("tcp", o.Address)
		if is, ok := l.Addr().(*net.TCPAddr); ok && err == nil && canonical(is) == canonical(want) {
			given[o.Name] = &Listener{options: o, socket: l, addr: l.Addr()}
			o.Certificates.adoptKeys(s.TicketKeys)
			return nil
		}
	}
	return l.Close()
}

func filesOf(rights []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // the message holds no descriptors
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), ""))
		}
	}
	return files, nil
}

// sameUser fails if the process at the other end belongs to another user.
func sameUser(c *net.UnixConn) error {
	var peer *unix.Ucred
	err := withFDs(func(fds ...int) (err error) {
		peer, err = unix.GetsockoptUcred(fds[0], unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	}, c)
	if err != nil {
		return err
	}
	if int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("the process at the other end belongs to user %d, this one to %d", peer.Uid, os.Geteuid())
	}
	return nil
}
