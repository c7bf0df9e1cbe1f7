package http1

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"adbuffer/internal/wire/socket"
)

// listener makes a Conn of each accepted connection. At max_connections, another connection is closed to make room
// for the new connection, or the new connection is refused; see makeRoom.
type listener struct {
	net.Listener
	server *Server
}

// maxRefusing bounds how many refused connections get a response at the same time. Further connections are closed
// without a response, but are counted too.
const maxRefusing = 64

func (l *listener) Accept() (net.Conn, error) {
	s := l.server
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		limit := s.options().MaxConnections
		for s.Open() >= limit && s.makeRoom(limit, newcomerOf(c)) { // a reload may have lowered the limit
		}
		if s.Open() < limit { // only Accept adds to it
			s.open.Add(1)
			s.accepted.Add(1)
			return s.newClient(c), nil
		}
		s.refuseConnection(c)
	}
}

// newcomerOf returns what is known of a connection that was accepted.
func newcomerOf(c net.Conn) newcomer {
	if _, ok := c.(proxied); ok {
		return newcomer{unknown: true}
	}
	return newcomer{peer: socket.PeerOf(c)}
}

// FreeFile closes the client connection that has been idle for longest, if err says that the process
// or the machine has too many files open. It reports whether it closed a connection.
func (s *Server) FreeFile(err error) bool {
	return (errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)) && s.dropIdle()
}

// dropIdle closes the connection that has been idle for longest. It returns false if no connection is idle. A
// connection on which a request has arrived is served instead.
func (s *Server) dropIdle() bool {
	for {
		cc := s.clients.resumeFirst()
		switch {
		case cc == nil:
			return false
		case cc.serveOrClose():
			s.idleDropped.Add(1)
			return true
		}
	}
}

// refuseConnection writes a response to a connection beyond the limit. It closes the
// connection once the client has had time to read the response: closing it with unread
// bytes would reset it.
func (s *Server) refuseConnection(c net.Conn) {
	s.connectionsRefused.Add(1)
	peer := newcomerOf(c).peer
	if header, ok := c.(proxied); ok {
		c = header.NetConn()
	}
	w := s.handler.Refused(peer, s.tooManyConnections())
	if s.tls != nil {
		c.Close()
		return
	}
	if s.refused.Add(1) > maxRefusing {
		s.refused.Add(-1)
		c.Close()
		return
	}
	go func() {
		defer s.refused.Add(-1)
		defer c.Close()
		c.SetDeadline(time.Now().Add(refuseWithin))
		c.Write(w.last()) //nolint:errcheck // the client is refused either way
		discardUnread(c, s.options().MaxHeaderBytes)
	}()
}

// Connections are the clients' connections at one moment, and their limit.
type Connections struct {
	Open, Limit int64
	From        string // names the setting, and says why the limit is lower than the setting, if it is
	// Refused and Closed count connections since start: those that were refused at the limit, and those
	// that were closed for new ones, also for lack of files.
	Refused, Closed uint64
	// Single counts the connections since start that ended after one request; SinglePeer is the client of the last one,
	// the zero Addr for a Unix socket.
	Single     uint64
	SinglePeer netip.Addr
}

// Connections returns the state of the clients' connections.
func (s *Server) Connections() Connections {
	o, dropped := s.options(), &s.clients.unfinished
	single, peer := s.reuse.singles()
	return Connections{
		Open: int64(s.Open()), Limit: int64(o.MaxConnections), From: o.connectionsFrom(), Refused: s.connectionsRefused.Load(),
		Closed: s.idleDropped.Load() + dropped.handshakes.Load() + dropped.heads.Load(),
		Single: single, SinglePeer: peer,
	}
}

const refuseWithin = 200 * time.Millisecond

// listeners are the listeners that Serve was given. A drain closes them.
type listeners struct {
	mu  sync.Mutex
	all []net.Listener

	closed bool // listeners that are added later are closed at once
}

func (l *listeners) add(added net.Listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		added.Close()
	}
	l.all = append(l.all, added)
}

func (l *listeners) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, one := range l.all {
		one.Close()
	}
}

// refuse reports a request or connection that was not read completely, and writes the response to
// w. The caller closes the connection.
func (c *Conn) refuse(w io.Writer, f *Refusal) {
	w.Write(c.server.handler.Refused(c.Client.Peer, f).last()) //nolint:errcheck // the client is refused either way
}
