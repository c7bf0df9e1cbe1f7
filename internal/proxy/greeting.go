package proxy

import (
	"crypto/tls"
	"errors"
	"math"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"adbuffer/internal/socket"
)

// greeting is the steps before the first request of a client's connection: a PROXY header, and the
// TLS handshake. The connection's goroutine uses it.
type greeting struct {
	needed bool    // the connection begins with a PROXY header or TLS
	header proxied // reads the PROXY header; nil if none is left to read
	begun  bool
	// handshaking means that the TLS handshake is running. Then computing holds a place of the
	// handshake limiter.
	handshaking, computing bool
	busyUntil              atomic.Int64 // see isBusy; in nanoseconds since 1970
}

// flightFor is how long a client may take for its next part of a TLS handshake.
const flightFor = 500 * time.Millisecond

// isBusy reports whether the handshake computes, or waits for a place of the limiter. It also
// reports true for flightFor after adbuffer has sent its part. Otherwise, clients that connect
// faster than adbuffer computes would push out each other, and none would be served; see unfinished.
func (g *greeting) isBusy() bool { return time.Now().UnixNano() < g.busyUntil.Load() }

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
func (c *clientConn) Handshake() error {
	g := &c.greeting
	if g.begun {
		return nil
	}
	g.begun = true
	if g.header != nil {
		peer, err := g.header.ReadHeader()
		if err != nil {
			return err
		}
		c.peer, g.header = peer, nil
	}
	if c.tls != nil {
		if err := c.handshake(); err != nil {
			return err
		}
	}
	if !c.change(connecting, serving) {
		return net.ErrClosed
	}
	return nil
}

// handshake gives the client read_timeout for the whole TLS handshake.
func (c *clientConn) handshake() error {
	c.deadlines.enterUntil(handshaking, time.Now().Add(c.proxy.current().opts.ReadTimeout))
	h := &c.proxy.handshakes
	h.now.Add(1)
	c.greeting.handshaking = true
	err := c.tls.Handshake()
	c.greeting.handshaking = false
	c.endComputing()
	c.greeting.busyUntil.Store(0)
	h.now.Add(-1)
	h.count(c.tls, err)
	if err != nil {
		c.respondPlaintext(err)
		return err
	}
	c.deadlines.reset()
	return nil
}

// respondPlaintext responds to a client that sent HTTP in cleartext to a TLS listener.
func (c *clientConn) respondPlaintext(err error) {
	var head tls.RecordHeaderError
	if !errors.As(err, &head) || head.Conn == nil || !slices.Contains([]string{"GET /", "HEAD ", "POST "}, string(head.RecordHeader[:])) {
		return
	}
	c.refuseUnread(c.Conn, malformed("this listener expects TLS; see server.tls"))
	c.discardUnread()
}

// tlsSocket is the socket below TLS. Both fields are nil while the connection is parked, when TLS
// is not used.
type tlsSocket struct {
	*socket.Conn
	client *clientConn
}

func (s *tlsSocket) use(c *clientConn) { s.Conn, s.client = c.Conn, c }
func (s *tlsSocket) leave()            { s.Conn, s.client = nil, nil }

// Read implements net.Conn. While a handshake waits for the client, it holds no place of the
// limiter.
func (s *tlsSocket) Read(b []byte) (int, error) {
	c := s.client
	if !c.greeting.handshaking {
		return s.Conn.Read(b)
	}
	c.endComputing()
	n, err := s.Conn.Read(b)
	if err == nil {
		c.greeting.busyUntil.Store(math.MaxInt64)
		err = c.proxy.handshakeLimiter.acquire(c.deadlines.by)
		c.greeting.computing = err == nil
	}
	return n, err
}

func (s *tlsSocket) Write(b []byte) (int, error) {
	if c := s.client; c.greeting.computing {
		c.endComputing()
		c.greeting.busyUntil.Store(time.Now().Add(flightFor).UnixNano())
	}
	return s.Conn.Write(b)
}

func (c *clientConn) endComputing() {
	if c.greeting.computing {
		c.greeting.computing = false
		c.greeting.busyUntil.Store(0)
		c.proxy.handshakeLimiter.release()
	}
}
