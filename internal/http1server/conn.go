package proxy

import (
	"crypto/tls"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"adbuffer/internal/http2server"
	"adbuffer/internal/socket"
	"adbuffer/internal/upstream"
)

// clientConn is a client's connection from when it is accepted or resumed until it is parked
// or closed. fasthttp's server reads and writes it on one goroutine at a time.
//
// It implements net.Conn, socket.Watcher and http2server.Owner. Its parts own their state.
// greeting.go has the steps before the first request, parking.go the phases of its life, parked.go
// the state while it is parked. deadlines.go has its timeouts, head.go and body.go the request that
// is being read.
type clientConn struct {
	*socket.Conn
	lifecycle
	proxy *Proxy
	tls   *tls.Conn  // over Conn; nil for cleartext
	peer  netip.Addr // the client's address; zero for a Unix socket

	greeting  greeting
	deadlines deadlines
	// unfinished is nil once the head has arrived. The connection's goroutine and clients.mu guard it:
	// only that goroutine changes it, with clients.mu held.
	unfinished *unfinishedConn

	http2   *http2server.Conn // serves this connection; nil over HTTP/1. Guarded by mu until HTTP/2 begins.
	isHTTP2 atomic.Bool       // HTTP/2: http2 is set, and never removed

	// sending is the exchange whose response is being written, nil for none. The response has
	// been written when the server asks for the next request, or closes. So an idle client holds
	// no memory for a body.
	sending *upstream.Exchange
	waiting waiting // while the client has not read enough of the response; not over HTTP/2

	// The request that is being read.
	early     early // bytes after the current message head or chunk
	head      messageHead
	body      body
	uploading *upload // of the body; nil if there is none
	unread    bool    // the last request was not read completely

	// upgraded: the server gets the connection back as an HTTP/2 connection.
	upgraded bool

	stopped  atomic.Bool      // no Read waits any more; see stop
	left     *upstream.Cancel // ends when the client has closed the connection
	goneFunc func() bool      // gone, made once, so that it costs no allocation
}

// newClient never waits for the client, because Accept calls it.
func (p *Proxy) newClient(c net.Conn) *clientConn {
	header, _ := c.(proxied)
	if header != nil {
		c = header.NetConn()
	}
	cc := newClientConn(p, c)
	cc.opened, cc.greeting.header = time.Now(), header
	if header == nil {
		cc.peer = peerOf(c)
	}
	if p.tls != nil {
		cc.Records()
		cc.tls = tls.Server(&tlsSocket{cc.Conn, cc}, p.tls)
	}
	cc.greeting.needed = header != nil || cc.tls != nil
	p.clients.add(cc)
	p.watch.add(cc)
	return cc
}

// newClientConn returns a clientConn with the fields that a new and a resumed connection share.
func newClientConn(p *Proxy, c net.Conn) *clientConn {
	cc := &clientConn{proxy: p, left: upstream.NewCancel()}
	cc.Conn = socket.New(c)
	cc.Count(&p.traffic)
	cc.goneFunc = cc.gone
	cc.body.conn = cc
	cc.OnWait(cc.waitRead, cc.waitWrite)
	return cc
}

// peerOf returns the address at the other end of c. It is the zero Addr for a Unix socket and for a
// connection with a PROXY header.
func peerOf(c net.Conn) netip.Addr {
	if _, ok := c.(proxied); ok {
		return netip.Addr{}
	}
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// Read implements net.Conn, for fasthttp's server, which reads only heads.
//
// Neither Read nor Write yields to other goroutines. At saturation a yield lets the next request
// arrive, so no connection ever waits in the poller. The scheduler checks the poller only when no
// goroutine is ready, or every 10 ms. A client whose connection does wait there would wait that
// long (p99 20 ms instead of 3 ms).
func (c *clientConn) Read(b []byte) (int, error) {
	c.release()
	return c.readHead(b)
}

// read reads the connection's plaintext.
func (c *clientConn) read(b []byte) (int, error) {
	if c.tls != nil {
		return c.tls.Read(b)
	}
	return c.readSocket(b)
}

func (c *clientConn) readSocket(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.unfinished != nil {
		c.unfinished.reading.Store(false)
	}
	return n, err
}

func (c *clientConn) Write(b []byte) (int, error) {
	c.deadlines.writeBy = time.Time{}
	if c.tls != nil {
		return c.tls.Write(b)
	}
	return c.Conn.Write(b)
}

// endRequest is called when a request has been handled. It reports whether another one may follow:
// not if a part of its body is unread.
func (c *clientConn) endRequest() (next bool) {
	read := c.head.refusal == nil && (c.uploading == nil || c.body.ended())
	c.unread = !read
	c.deadlines.reset()
	c.uploading = nil
	return read && !c.stopped.Load() && c.left.Err() == nil
}

// Notify implements socket.Watcher. The client has closed the connection, or its sending half. With
// abort_on_close both cancel the current request.
func (c *clientConn) Notify(hungUp bool) {
	if hungUp && (c.proxy.current().opts.AbortOnClose || c.Failed()) {
		c.left.End()
	}
}

// stop implements stopper. Bytes that have arrived can still be read.
func (c *clientConn) stop() {
	c.stopped.Store(true)
	c.Interrupt()
}

// release releases the exchange whose response has been written.
func (c *clientConn) release() {
	if c.sending != nil {
		c.proxy.unread.end(&c.waiting)
		c.sending.Release()
		c.sending = nil
	}
}

// gone reports whether the client has closed its connection. A client that closes only its sending
// half counts as gone, as is usual for HTTP. TLS may have sent bytes behind the last request, such
// as its close_notify. Only a read could distinguish them from another request, so gone ignores
// them.
func (c *clientConn) gone() bool {
	if !c.proxy.current().opts.AbortOnClose {
		return c.left.Err() != nil
	}
	if c.tls != nil {
		return c.HungUp()
	}
	return c.Peek() == socket.Ended
}
