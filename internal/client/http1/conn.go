package http1

import (
	"crypto/tls"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"adbuffer/internal/client/http2"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/socket"
)

// Conn is a client's connection from when it is accepted or resumed until it is parked
// or closed. fasthttp's server reads and writes it on one goroutine at a time.
//
// It implements net.Conn and socket.Watcher; http2Side implements http2.Owner for it. Its parts own their state.
// greeting.go has the steps before the first request, parking.go the phases of its life, parked.go
// the state while it is parked. deadlines.go has its timeouts, head.go and body.go the request that
// is being read.
type Conn struct {
	server *Server
	socket *socket.Conn
	tls    *tls.Conn // over socket; nil for cleartext

	Client    Client // what the requests know about the client
	life      lifecycle
	greeting  greeting
	deadlines deadlines
	// unfinished is nil once the head has arrived. The connection's goroutine and clients.mu guard it:
	// only that goroutine changes it, with clients.mu held.
	unfinished *unfinishedConn

	http2   *http2.Conn // serves this connection; nil over HTTP/1. Guarded by mu until HTTP/2 begins.
	isHTTP2 atomic.Bool // HTTP/2: http2 is set, and never removed

	// responding is the request whose response is being written, nil for none. The response has
	// been written when the server asks for the next request, or closes. So an idle client holds
	// no memory for a body.
	responding Request

	// The request that is being read.
	early      early // bytes after the current message head or chunk
	head       messageHead
	body       Body
	partlyRead bool // the last request was not read completely
	pause      pause

	// upgraded means that fasthttp's server gets the connection back as an HTTP/2 connection.
	upgraded bool

	stopped atomic.Bool // Reads no longer wait; see Stop
}

// Client holds what the connection, or the HTTP/2 stream, of a request knows about the client.
type Client struct {
	Peer netip.Addr // the other end of the connection; zero for a Unix socket
	TLS  bool       // the connection uses TLS
	// Gone reports whether the client no longer wants the response. Cancel is ended when the client no longer wants it.
	Gone   func() bool
	Cancel *exchange.Cancel
	// InputAge returns how long ago the last bytes of the connection arrived; ok is false if that is
	// unknown.
	InputAge func() (age time.Duration, ok bool)
	// Waited is how long the request is known to have waited because the connection was not read; see Response.Pause.
	Waited time.Duration
}

// newClient never waits for the client, because Accept calls it.
func (s *Server) newClient(c net.Conn) *Conn {
	header, _ := c.(proxied)
	if header != nil {
		c = header.NetConn()
	}
	cc := newConn(s, c)
	cc.life.opened, cc.greeting.header, cc.greeting.memory = time.Now(), header, &s.memory
	if header == nil {
		cc.Client.Peer = socket.PeerOf(c)
	}
	if s.tls != nil {
		cc.socket.Records()
		cc.tls, cc.Client.TLS = tls.Server(&tlsSocket{cc.socket, cc}, s.tls), true
	}
	cc.greeting.needed = header != nil || cc.tls != nil
	s.clients.add(cc)
	s.watch.add(cc)
	return cc
}

// newConn returns a Conn with the fields that a new and a resumed connection share.
func newConn(s *Server, c net.Conn) *Conn {
	cc := &Conn{server: s}
	cc.socket = socket.New(c)
	cc.Client.Cancel, cc.Client.Gone, cc.Client.InputAge = exchange.NewCancel(), cc.gone, cc.socket.SinceInput
	cc.body.conn = cc
	cc.socket.OnWait(cc.waitRead, cc.waitWrite)
	return cc
}

// Read implements net.Conn, for fasthttp's server, which reads only heads.
//
// Neither Read nor Write yields to other goroutines. At saturation a yield lets the next request
// arrive, so no connection ever waits in the poller. The scheduler checks the poller only when no
// goroutine is ready, or every 10 ms. A client whose connection does wait there would wait that
// long (p99 20 ms instead of 3 ms).
func (c *Conn) Read(b []byte) (int, error) {
	c.release()
	c.awaitPause()
	return c.readHead(b)
}

// read reads the connection's plaintext.
func (c *Conn) read(b []byte) (int, error) {
	if c.tls != nil {
		return c.tls.Read(b)
	}
	return c.readSocket(b)
}

func (c *Conn) readSocket(b []byte) (int, error) {
	n, err := c.socket.Read(b)
	if n > 0 && c.unfinished != nil {
		c.unfinished.reading.Store(false)
	}
	return n, err
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return c.socket.LocalAddr() }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.socket.RemoteAddr() }

// SetDeadline, SetReadDeadline and SetWriteDeadline implement net.Conn. fasthttp's server removes deadlines, and sets
// none; see deadlines.go.
func (c *Conn) SetDeadline(t time.Time) error      { return c.socket.SetDeadline(t) }
func (c *Conn) SetReadDeadline(t time.Time) error  { return c.socket.SetReadDeadline(t) }
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.socket.SetWriteDeadline(t) }

// Write implements net.Conn. See Read.
func (c *Conn) Write(b []byte) (int, error) {
	c.deadlines.writeBy = time.Time{}
	if c.tls != nil {
		return c.tls.Write(b)
	}
	return c.socket.Write(b)
}

// endRequest is called when a request has been handled. It reports whether another request may follow on the
// connection, which is not so if a part of this request was not read.
func (c *Conn) endRequest() (next bool) {
	read := c.head.read && (c.body.of == nil || c.body.ended())
	c.partlyRead = !read
	c.deadlines.reset()
	c.body.of = nil
	return read && !c.stopped.Load() && c.Client.Cancel.Err() == nil
}

// Notify implements socket.Watcher. The client has closed the connection, or its sending half. With
// abort_on_close both cancel the current request.
func (c *Conn) Notify(hungUp bool) {
	if hungUp && (c.server.options().AbortOnClose || c.socket.Failed()) {
		c.Client.Cancel.End()
	}
}

// Stop makes each Read of a body that would wait fail. Bytes that have arrived can still be read.
func (c *Conn) Stop() {
	c.stopped.Store(true)
	c.socket.Interrupt()
}

// release releases the request whose response has been written.
func (c *Conn) release() {
	if c.responding != nil {
		c.responding.Release()
		c.responding = nil
	}
}

// HangUp closes the socket on another goroutine, since the close waits for a Read or Write that is about to wait.
// Over HTTP/2 such a Read needs the lock of the HTTP/2 connection, which the caller may hold.
func (c *Conn) HangUp() { go c.socket.Close() }

// gone reports whether the client has closed its connection. A client that closes only its sending half counts as
// gone, as is usual for HTTP. On TLS, bytes may follow the last request that are not a request, such as close_notify.
// Only a read could tell, so gone ignores unread bytes.
func (c *Conn) gone() bool {
	if !c.server.options().AbortOnClose {
		return c.Client.Cancel.Err() != nil
	}
	if c.tls != nil {
		return c.socket.HungUp()
	}
	return c.socket.Peek() == socket.Ended
}
