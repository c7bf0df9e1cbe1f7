package http1

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"adbuffer/internal/wire/cpushare"
	"adbuffer/internal/wire/handshake"
	"adbuffer/internal/wire/socket"
)

// greeting holds the state of what precedes the first request of a client's connection: a PROXY header, and the TLS
// handshake. Only the connection's goroutine uses it.
type greeting struct {
	needed bool    // the connection begins with a PROXY header or TLS
	header proxied // reads the PROXY header; nil if there is none, or it has been read
	begun  bool
	// turns bounds the CPU of the TLS handshake while it is running; nil at other times.
	turns *cpushare.Handshake
	bytes handshake.ClientBytes
	held  int // bytes of the handshake that Handler.Hold counts
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
	if g.begun {
		return nil
	}
	g.begun = true
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
	if !c.change(connecting, serving) {
		return net.ErrClosed
	}
	return nil
}

// handshake gives the client read_timeout for the whole TLS handshake.
func (c *Conn) handshake() error {
	c.deadlines.enterUntil(handshaking, time.Now().Add(c.server.options().ReadTimeout))
	s := c.server
	c.greeting.turns = s.cpu.NewHandshake(cpushare.ClientHandshake, cpushare.PartyOf(c.Peer), nil)
	err := c.tls.Handshake()
	c.greeting.turns.Release()
	c.greeting.turns = nil
	c.holdHandshake(-c.greeting.held)
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
	c.refuse(c.Conn, Malformed("this listener expects TLS; see server.tls"))
	c.unfinished.reading.Store(true)
	c.discardUnread()
}

// tlsSocket is the socket below TLS. Both fields are nil while the connection is parked, when TLS
// is not used.
type tlsSocket struct {
	*socket.Conn
	client *Conn
}

func (s *tlsSocket) use(c *Conn) { s.Conn, s.client = c.Conn, c }
func (s *tlsSocket) leave()      { s.Conn, s.client = nil, nil }

// Read implements net.Conn. A handshake takes a turn when bytes have arrived.
func (s *tlsSocket) Read(b []byte) (int, error) {
	c := s.client
	turns := c.greeting.turns
	if turns == nil {
		return c.readSocket(b)
	}
	if !c.ReadAhead() {
		turns.Release()
	}
	b, err := c.greeting.bytes.Room(b)
	if err != nil {
		return 0, err
	}
	n, err := c.readSocket(b)
	if err == nil {
		err = c.handshakeArrived(n)
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

// handshakeArrived counts n bytes of the handshake. It returns an error if the client has sent more than
// freeHandshakeBytes while the handshakes of all clients hold too many bytes.
func (c *Conn) handshakeArrived(n int) error {
	g, s := &c.greeting, c.server
	g.bytes.Arrived(n)
	c.holdHandshake(n)
	limit := s.options().MaxBufferedBytes / handshakeShare
	if all := s.handshakeBytes.Load(); g.bytes.Part() > freeHandshakeBytes && all > limit {
		return fmt.Errorf("%w: it has more than %d bytes, and those of all clients hold %d bytes, an eighth of server.max_buffered_bytes", handshake.ErrTooLarge, freeHandshakeBytes, all)
	}
	return nil
}

// holdHandshake adds n to the bytes that unfinished handshakes hold; n is negative at the end.
func (c *Conn) holdHandshake(n int) {
	c.greeting.held += n
	c.server.handshakeBytes.Add(int64(n))
	c.server.handler.Hold(n)
}

func (s *tlsSocket) Write(b []byte) (int, error) {
	if c := s.client; c.greeting.turns != nil {
		c.greeting.bytes.Wrote()
		if c.greeting.turns.Release() {
			c.unfinished.flight.Store(time.Now().UnixNano())
		}
	}
	return s.Conn.Write(b)
}
