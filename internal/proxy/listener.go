package proxy

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"adbuffer/internal/socket"
	"adbuffer/internal/upstream"
)

// listener wraps accepted connections, and refuses those over max_connections.
type listener struct {
	net.Listener
	proxy *Proxy
}

// maxRefusing bounds the connections that are being told that there are too
// many; beyond it they are closed without a word, and counted all the same.
const maxRefusing = 64

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	p := l.proxy
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		g := p.current()
		if p.open.Add(1) <= int64(g.opts.MaxConnections) {
			return p.newClient(c, g.opts.TLS != nil), nil
		}
		p.open.Add(-1)
		p.refuseConnection(c, g)
	}
}

// clientConn is a client's connection. fasthttp's server reads and writes it on
// one goroutine, and so do those that park it; see idle.go.
type clientConn struct {
	*socket.Conn
	proxy *Proxy
	tls   *tls.Conn  // over Conn; nil for cleartext
	peer  netip.Addr // zero for a unix socket
	// header is the PROXY header that is to be read first, nil for none.
	header  proxied
	greets  bool // there is a header or TLS
	greeted bool // Handshake was called
	shaking bool // its TLS handshake is under way
	hasTurn bool // and has one of the turns

	mu    sync.Mutex
	phase phase        // guarded by mu
	http2 *http.Server // guarded by mu; serves this connection alone, nil over HTTP/1

	spoken  atomic.Bool    // HTTP/2, whose server keeps its own time for reads
	closing atomic.Bool    // nothing waits to be written any more
	streams sync.WaitGroup // handlers of HTTP/2; none begins once phase is closed

	// sending holds the answer whose body is being written, nil for none. Once
	// the server asks for the next request, or closes, it has been written.
	sending atomic.Pointer[upstream.Exchange]

	line requestLine
	// idle: the last Read was for a request of which nothing had come, and
	// nothing came.
	idle      bool
	idleUntil time.Time // when idle_timeout is over
	// by is when the request in hand must have been read; zero until a read of
	// it has had to wait.
	by time.Time

	goneFunc func() bool // gone, made once, so that it costs no allocation
}

// newClient does nothing that may wait for the client: it runs within Accept.
func (p *Proxy) newClient(c net.Conn, overTLS bool) *clientConn {
	cc := &clientConn{proxy: p}
	if header, ok := c.(proxied); ok {
		cc.header, c = header, header.NetConn()
	} else if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		cc.peer = a.AddrPort().Addr().Unmap()
	}
	cc.Conn = socket.New(c)
	if overTLS {
		cc.Records()
		cc.tls = tls.Server(tlsSocket{cc.Conn, cc}, p.tls)
	}
	cc.greets = cc.header != nil || cc.tls != nil
	cc.goneFunc = cc.gone
	cc.OnWait(cc.waitRead, cc.waitWrite)
	cc.line.expect()
	p.clients.add(cc)
	return cc
}

// clientOf returns the connection of a request.
func clientOf(ctx *fasthttp.RequestCtx) *clientConn { return ctx.Conn().(*clientConn) }

// Read implements net.Conn.
func (c *clientConn) Read(b []byte) (int, error) {
	c.release()
	// Others that are ready go first. Meanwhile the client's next request may
	// come, and the read need not be tried twice (EAGAIN, park, wake).
	// BenchmarkForward shows what that is worth; it costs nothing when nobody
	// else is ready.
	runtime.Gosched()
	// The server reads into what is free of its buffer: all, where it holds
	// nothing of the next request yet.
	c.idle = c.line.awaited() && len(b) == c.proxy.server.ReadBufferSize
	n, err := c.read(b)
	switch {
	case n > 0:
		c.idle = false
		if c.line.open {
			c.line.see(b[:n])
		}
	case c.idle && c.leave(err):
		return 0, io.EOF
	}
	return n, err
}

func (c *clientConn) read(b []byte) (int, error) {
	if c.tls != nil {
		return c.tls.Read(b)
	}
	return c.Conn.Read(b)
}

// headTaken is called for each request: what is read from now on is its body.
// It reports whether the request line ended in a bare LF.
func (c *clientConn) headTaken() (bareLF bool) {
	bareLF = c.line.bare
	c.line.open = false
	return bareLF
}

// nextRequest is called when a request has been handled.
func (c *clientConn) nextRequest() {
	c.line.expect()
	c.by = time.Time{}
}

// waitRead and waitWrite are called before a Read or Write waits. The timeouts
// of the server are set here and not in fasthttp, which sets three deadlines a
// request, each with a look at the clock: nearly all requests come in one piece
// and nearly all answers leave in one.
func (c *clientConn) waitRead() {
	if c.spoken.Load() {
		return
	}
	o := &c.proxy.current().opts
	if c.MidRecord() { // a request has begun, though TLS has nothing of it to show
		c.idle = false
	}
	switch {
	case c.idle:
		now := time.Now()
		c.idleUntil = now.Add(o.IdleTimeout)
		c.SetReadDeadline(now.Add(min(o.parkAfter(), o.IdleTimeout))) //nolint:errcheck // a closed socket fails the read
	case c.by.IsZero():
		c.by = time.Now().Add(o.ReadTimeout)
		c.SetReadDeadline(c.by) //nolint:errcheck // as above
	}
}

func (c *clientConn) waitWrite() {
	if c.closing.Load() {
		c.SetWriteDeadline(time.Unix(0, 0)) //nolint:errcheck // a closed socket fails the write
		return
	}
	c.SetWriteDeadline(time.Now().Add(c.proxy.current().opts.WriteTimeout)) //nolint:errcheck // a closed socket fails the write
}

// Write implements net.Conn.
func (c *clientConn) Write(b []byte) (int, error) {
	if c.tls != nil {
		return c.tls.Write(b)
	}
	return c.WriteInBurst(b)
}

// keep holds ex, whose answer is about to be written, until that is done. An
// idle client then has no memory for a body.
func (c *clientConn) keep(ex *upstream.Exchange) {
	c.release() // the answer to a pipelined request before it stands in the server's buffer
	c.sending.Store(ex)
}

func (c *clientConn) release() {
	if c.sending.Load() == nil {
		return
	}
	if ex := c.sending.Swap(nil); ex != nil {
		ex.Release()
	}
}

// gone reports whether the client has closed its connection. Clients that close
// only their sending half are taken to have left, as is usual for HTTP.
// What TLS has sent behind the last request, its close_notify for one, cannot be
// told from another request without reading it.
func (c *clientConn) gone() bool {
	if c.tls != nil {
		return c.HungUp()
	}
	return c.Peek() == socket.Ended
}

// requestLine finds a bare LF at the end of a request line, which fasthttp takes
// without a word and does not show. It sees the line of each request that
// starts a read; of pipelined ones, the first.
type requestLine struct {
	open bool // within the line
	bare bool // it ended in a bare LF
	some bool // a byte of it has come
	last byte

	begun bool // a byte has come, if only of an empty line before it
}

func (l *requestLine) expect() { *l = requestLine{open: true} }

// awaited reports whether no byte of the line was seen yet.
func (l *requestLine) awaited() bool { return l.open && !l.begun }

func (l *requestLine) see(b []byte) {
	l.begun = true
	for l.open {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			if len(b) > 0 {
				l.last = b[len(b)-1]
				l.some = l.some || len(b) > 1 || l.last != '\r'
			}
			return
		}
		before := l.last
		if i > 0 {
			before = b[i-1]
		}
		l.bare = l.bare || before != '\r'
		l.open = i <= 1 && !l.some // an empty line before the request line is allowed
		l.last = 0
		b = b[i+1:]
	}
}

// refuseConnection answers a connection over the limit, and closes it once the
// client has had time to read that: closing with unread bytes would reset it.
func (p *Proxy) refuseConnection(c net.Conn, g *generation) {
	g.ended(nil, upstream.Overloaded, 0)
	if g.opts.TLS != nil {
		c.Close() //nolint:errcheck // an answer would cost a handshake
		return
	}
	if header, ok := c.(proxied); ok {
		c = header.NetConn()
	}
	if p.refused.Add(1) > maxRefusing {
		p.refused.Add(-1)
		c.Close() //nolint:errcheck // it is refused either way
		return
	}
	go func() {
		defer p.refused.Add(-1)
		defer c.Close()                                            //nolint:errcheck // as above
		c.SetDeadline(time.Now().Add(refuseWithin))                //nolint:errcheck // a closed socket fails the write
		if _, err := c.Write(g.tooManyConnections()); err != nil { //nolint:gocritic // nothing else to do
			return
		}
		if t, ok := c.(interface{ CloseWrite() error }); ok {
			t.CloseWrite() //nolint:errcheck // the read below ends anyway
		}
		var drop [512]byte
		for n := 0; n < g.opts.MaxHeaderBytes; {
			m, err := c.Read(drop[:])
			if err != nil {
				return
			}
			n += m
		}
	}()
}

const refuseWithin = 200 * time.Millisecond

// clients are the open connections, to be cut at the end of a drain.
type clients struct {
	mu  sync.Mutex
	all map[*clientConn]struct{}
}

func (c *clients) add(cc *clientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = make(map[*clientConn]struct{})
	}
	c.all[cc] = struct{}{}
}

func (c *clients) remove(cc *clientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, cc)
}

// list returns those that are open now.
func (c *clients) list() []*clientConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*clientConn, 0, len(c.all))
	for cc := range c.all {
		all = append(all, cc)
	}
	return all
}

// cutAll ends what the server does with them; it closes them then.
func (c *clients) cutAll() {
	for _, cc := range c.list() {
		cc.Conn.Close() //nolint:errcheck // nothing is left to be done about it
	}
}
