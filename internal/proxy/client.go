package proxy

import (
	"crypto/tls"
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
	// goingAway: a GOAWAY was sent, since adbuffer drains. Guarded by mu.
	goingAway bool

	opened time.Time   // when it was accepted
	heard  atomic.Bool // the client has asked for something

	spoken  atomic.Bool // HTTP/2, whose server keeps its own time for reads
	closing atomic.Bool // nothing waits to be written any more

	// sending holds the answer whose body is being written, nil for none. Once
	// the server asks for the next request, or closes, it has been written.
	sending atomic.Pointer[upstream.Exchange]

	// The fields up to byStage are about the request that is being read; head.go
	// and body.go say how.
	stage     stage
	early     early
	head      messageHead
	body      body
	uploading *upload   // of the body, nil where there is none
	unread    bool      // the last request was not read to its end
	idleUntil time.Time // when idle_timeout is over
	by        time.Time // when stage byStage must be over; set where a read has to wait
	byStage   stage

	stopped atomic.Bool // nothing more is read from it; see stop
	// writeBy is when the Write under way must have ended; zero until it has had
	// to wait.
	writeBy time.Time

	goneFunc func() bool // gone, made once, so that it costs no allocation
}

// newClient does nothing that may wait for the client: it runs within Accept.
func (p *Proxy) newClient(c net.Conn, overTLS bool) *clientConn {
	cc := &clientConn{proxy: p, opened: time.Now()}
	if header, ok := c.(proxied); ok {
		cc.header, c = header, header.NetConn()
	} else {
		cc.peer = peerOf(c)
	}
	cc.Conn = socket.New(c)
	if overTLS {
		cc.Records()
		cc.tls = tls.Server(tlsSocket{cc.Conn, cc}, p.tls)
	}
	cc.greets = cc.header != nil || cc.tls != nil
	cc.goneFunc = cc.gone
	cc.body.conn = cc
	cc.OnWait(cc.waitRead, cc.waitWrite)
	p.clients.add(cc)
	return cc
}

// peerOf returns the address at the other end of c, the zero Addr for a unix socket
// and for a connection with a PROXY header.
func peerOf(c net.Conn) netip.Addr {
	if _, ok := c.(proxied); ok {
		return netip.Addr{}
	}
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// clientOf returns the connection of a request.
func clientOf(ctx *fasthttp.RequestCtx) *clientConn { return ctx.Conn().(*clientConn) }

// Read implements net.Conn, for fasthttp's server.
func (c *clientConn) Read(b []byte) (int, error) {
	c.release()
	// Others that are ready go first. Meanwhile the client's next request may
	// come, and the read need not be tried twice (EAGAIN, park, wake).
	// BenchmarkForward shows what that is worth; it costs nothing when nobody
	// else is ready.
	runtime.Gosched()
	return c.readHead(b)
}

func (c *clientConn) read(b []byte) (int, error) {
	if c.tls != nil {
		return c.tls.Read(b)
	}
	return c.Conn.Read(b)
}

// endRequest is called when a request has been handled, and reports whether another
// may follow: not where a part of its body has not been read.
func (c *clientConn) endRequest() (next bool) {
	read := c.head.refusal == nil && (c.uploading == nil || c.body.ended())
	c.unread = !read
	c.stage, c.byStage, c.uploading = idle, idle, nil
	return read && !c.stopped.Load()
}

// stop implements stopper. What has come can still be read.
func (c *clientConn) stop() {
	c.stopped.Store(true)
	c.Interrupt()
}

// waitRead and waitWrite are called before a Read or Write waits, and return its
// deadline. The timeouts of the server are set here and not in fasthttp, which sets
// three deadlines a request, each with a look at the clock: nearly all requests come
// in one piece and nearly all answers leave in one.
//
// A head has read_timeout from its first byte on, a body from the end of the head
// until its first byte, and from its first byte on.
func (c *clientConn) waitRead() time.Time {
	if c.spoken.Load() {
		return time.Time{}
	}
	o := &c.proxy.current().opts
	now := time.Now()
	if c.stage == idle && !c.MidRecord() {
		c.idleUntil = now.Add(o.IdleTimeout)
		return now.Add(min(o.parkAfter(), o.IdleTimeout))
	}
	if c.stage == idle { // TLS has nothing of the request to show yet
		c.stage = inHead
	}
	if c.byStage != c.stage {
		c.by, c.byStage = now.Add(o.ReadTimeout), c.stage
	}
	if c.uploading != nil {
		c.proxy.uploads.begin(c.uploading, c)
	}
	return c.by
}

func (c *clientConn) waitWrite() time.Time {
	if c.closing.Load() {
		return time.Unix(0, 0)
	}
	// TLS writes a long answer in many records, each of which may have to wait.
	// HTTP/2 bounds its answers by itself: each of these is a frame or a few.
	if c.writeBy.IsZero() || c.spoken.Load() {
		c.writeBy = time.Now().Add(c.proxy.current().opts.WriteTimeout)
	}
	return c.writeBy
}

// Write implements net.Conn.
func (c *clientConn) Write(b []byte) (int, error) {
	c.writeBy = time.Time{}
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
