package http1

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"adbuffer/internal/wire/cpushare"
	"adbuffer/internal/wire/handshake"
	"adbuffer/internal/wire/socket"
)

// greeting holds the state of what precedes the first request of a client's connection: a PROXY header, and the TLS
// handshake. Only the connection's goroutine uses it, except that other goroutines read needed, which never changes.
type greeting struct {
	needed bool    // the connection begins with a PROXY header or TLS
	header proxied // reads the PROXY header; nil if there is none, or it has been read
	begun  bool
	// turns bounds the CPU of the TLS handshake while it is running; nil at other times.
	turns  *cpushare.Handshake
	bytes  handshake.ClientBytes
	held   int // bytes of the handshake that memory counts
	memory *handshakeMemory
}

// handshakeMemory counts the bytes that clients have sent in the TLS handshakes that run now.
type handshakeMemory struct {
	bytes atomic.Int64
	hold  func(n int) // Handler.Hold
}

func (m *handshakeMemory) add(n int) {
	m.bytes.Add(int64(n))
	m.hold(n)
}

// begin reports whether the greeting begins: only the first call returns true.
func (g *greeting) begin() bool {
	first := !g.begun
	g.begun = true
	return first
}

// arrived counts n bytes of the TLS handshake. It returns an error if the client has sent more than
// freeHandshakeBytes since adbuffer last wrote, while the handshakes of all clients hold more than
// maxBuffered / handshakeShare bytes.
func (g *greeting) arrived(n int, maxBuffered int64) error {
	g.bytes.CountRead(n)
	g.held += n
	g.memory.add(n)
	if all := g.memory.bytes.Load(); g.bytes.SinceServerWrote() > freeHandshakeBytes && all > maxBuffered/handshakeShare {
		return fmt.Errorf("%w: it has more than %d bytes, and those of all clients hold %d bytes, an eighth of server.max_buffered_bytes", handshake.ErrTooLarge, freeHandshakeBytes, all)
	}
	return nil
}

// handshakeOver releases what the TLS handshake held.
func (g *greeting) handshakeOver() {
	g.turns.Release()
	g.turns = nil
	g.memory.add(-g.held)
	g.held = 0
}

// proxied is a connection that begins with a PROXY header. ReadHeader reads the header,
// and returns the client's address, which is zero for a client on a unix socket. NetConn
// is the connection behind the header.
type proxied interface {
	net.Conn
	NetConn() net.Conn
	ReadHeader() (client netip.Addr, err error)
}

// Handshake reads the PROXY header and does the TLS handshake. fasthttp's server calls it on the
// connection's goroutine each time that it begins to serve the connection, also after parking. Only
// the first call has an effect.
func (c *Conn) Handshake() error {
	g := &c.greeting
	if !g.begin() {
		return nil
	}
	if g.header != nil {
		c.unfinished.reading.Store(true)
		peer, err := g.header.ReadHeader()
		c.unfinished.reading.Store(false)
		if err != nil {
			return err
		}
		g.header = nil
		c.server.clients.setPeer(c, peer)
	}
	if c.tls != nil {
		if err := c.handshake(); err != nil {
			return err
		}
	}
	c.unfinished.greeting.Store(false)
	if !c.life.change(connecting, serving) {
		return net.ErrClosed
	}
	return nil
}

// handshake gives the client read_timeout for the whole TLS handshake.
func (c *Conn) handshake() error {
	c.deadlines.enterUntil(handshaking, time.Now().Add(c.server.options().ReadTimeout))
	s := c.server
	c.greeting.turns = s.cpu.NewHandshake(cpushare.ClientHandshake, cpushare.PartyOf(c.Client.Peer), nil)
	err := c.tls.Handshake()
	c.greeting.handshakeOver()
	if err != nil {
		c.unfinished.flight.Store(0)
		s.failures.Add(handshake.ReasonOf(err))
		c.respondPlaintext(err)
		return err
	}
	state := c.tls.ConnectionState()
	s.versions.Add(&state)
	c.unfinished.flight.Store(time.Now().UnixNano())
	c.deadlines.reset()
	return nil
}

// respondPlaintext responds to a client that sent HTTP in cleartext to a TLS listener.
func (c *Conn) respondPlaintext(err error) {
	var head tls.RecordHeaderError
	if !errors.As(err, &head) || head.Conn == nil || !slices.Contains([]string{"GET /", "HEAD ", "POST "}, string(head.RecordHeader[:])) {
		return
	}
	c.refuse(c.socket, Malformed("this listener expects TLS; see server.tls"))
	c.unfinished.reading.Store(true)
	c.discardUnread()
}

// tlsSocket is the socket below TLS. Both fields are nil while the connection is parked, when TLS
// is not used.
type tlsSocket struct {
	*socket.Conn
	client *Conn
}

func (s *tlsSocket) use(c *Conn) { s.Conn, s.client = c.socket, c }
func (s *tlsSocket) leave()      { s.Conn, s.client = nil, nil }

// Read implements net.Conn. During a handshake, it releases the turn before it reads from the socket, where it may wait
// for the client, and acquires a turn when a TLS record is complete.
func (s *tlsSocket) Read(b []byte) (int, error) {
	c := s.client
	turns := c.greeting.turns
	if turns == nil {
		return c.readSocket(b)
	}
	if !c.socket.ReadAhead() {
		turns.Release()
	}
	b, err := c.greeting.bytes.LimitRead(b)
	if err != nil {
		return 0, err
	}
	n, err := c.readSocket(b)
	if err == nil {
		err = c.greeting.arrived(n, c.server.options().MaxBufferedBytes)
	}
	if err == nil {
		err = turns.Arrived(b[:n], c.deadlines.by)
	}
	return n, err
}

// A client's part of a handshake may exceed freeHandshakeBytes only while the handshakes of all clients together hold
// at most max_buffered_bytes / handshakeShare. Most clients send less than freeHandshakeBytes.
const (
	freeHandshakeBytes = 8 << 10
	handshakeShare     = 8
)

func (s *tlsSocket) Write(b []byte) (int, error) {
	if c := s.client; c.greeting.turns != nil {
		c.greeting.bytes.ServerWrote()
		if c.greeting.turns.Release() {
			c.unfinished.flight.Store(time.Now().UnixNano())
		}
	}
	return s.Conn.Write(b)
}
