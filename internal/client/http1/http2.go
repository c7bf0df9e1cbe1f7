package http1

import (
	"crypto/tls"
	"errors"
	"net"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/client/http2"
	"adbuffer/internal/wire/handshake"
	"adbuffer/internal/wire/http2codec"
)

// protoHTTP2 is the protocol that package http2 serves. Its requests take the same path as
// requests of HTTP/1. Clients choose it over TLS by ALPN, and in cleartext, with
// Options.H2C, by its preface.
const protoHTTP2 = "h2"

// NextProtos returns the protocols that clients may choose by ALPN, for Options.TLS. A client without
// ALPN gets HTTP/1.1.
func NextProtos() []string { return []string{protoHTTP2, "http/1.1"} }

// maxStreamWindow bounds how much of a body a client may send ahead. Bytes that have arrived count
// against max_buffered_bytes.
const maxStreamWindow = 1 << 20

// maxHeaderList bounds a header list, in which each field counts 32 bytes more than its length. It
// must exceed max_header_bytes, which is the bound that refuses requests.
func maxHeaderList(maxHeaderBytes int) int { return 2*maxHeaderBytes + 8<<10 }

// maxUnread is how many bytes of responses the client of an HTTP/2 connection may leave unread.
func (o *Options) maxUnread() int { return int(max(o.MaxBufferedBytes/16, 1<<20)) }

// serveHTTP2 serves a connection on which the client chose HTTP/2, until it ends or is
// idle.
func (s *Server) serveHTTP2(nc net.Conn) error {
	c := nc.(*Conn)
	if c.tls != nil {
		if state := c.tls.ConnectionState(); !handshake.AllowsHTTP2(&state) {
			c.refuseHTTP2(tls.CipherSuiteName(state.CipherSuite))
			return nil
		}
	}
	h := c.beginHTTP2()
	if h == nil {
		return net.ErrClosed
	}
	err := h.Serve()
	if errors.Is(err, http2.ErrIdle) {
		c.deadlines.idleUntil = h.Idle().Add(s.options().IdleTimeout)
		if time.Now().Before(c.deadlines.idleUntil) {
			c.park()
		}
	}
	_, c.partlyRead = errors.AsType[*http2codec.Error](err)
	return nil
}

// refuseHTTP2 ends a connection whose cipher suite HTTP/2 prohibits. Certificates.Config offers
// HTTP/1.1 alone to most such clients. RFC 9113, section 9.2.2.
func (c *Conn) refuseHTTP2(suite string) {
	text := "HTTP/2 is prohibited over " + suite
	c.Write(http2.InadequateSecurity(text)) //nolint:errcheck // the connection is over
	c.partlyRead = true                     // the client's preface
	http2Side{c}.Violated(text)
}

// ConnectionState returns the state of TLS. Over cleartext it holds only the protocol, which
// fasthttp's server needs for HTTP/2.
func (c *Conn) ConnectionState() tls.ConnectionState {
	if c.tls == nil {
		if c.isHTTP2.Load() {
			return tls.ConnectionState{NegotiatedProtocol: protoHTTP2}
		}
		return tls.ConnectionState{}
	}
	return c.tls.ConnectionState()
}

// beginHTTP2 returns the connection's HTTP/2 state, or nil if the connection is closed.
func (c *Conn) beginHTTP2() *http2.Conn {
	c.life.mu.Lock()
	defer c.life.mu.Unlock()
	if c.life.phase != serving {
		return nil
	}
	if c.http2 == nil {
		o := c.server.options()
		c.http2 = http2.New(http2Side{c}, http2Side{c}, http2.Options{
			MaxStreams: o.MaxStreams, MaxHeaderList: maxHeaderList(o.MaxHeaderBytes),
			StreamWindow: min(o.MaxBodyBytes, maxStreamWindow), ParkAfter: min(parkAfter, o.IdleTimeout),
			MaxUnread: o.maxUnread(),
		})
		c.isHTTP2.Store(true)
		c.life.requested.Store(true) // a GOAWAY states which of its requests are served
	}
	return c.http2
}

// upgrade begins HTTP/2 on a cleartext connection whose preface has been read as a message head.
// fasthttp's server releases the connection, and gets it back as an HTTP/2 connection.
func (c *Conn) upgrade(in []byte) {
	if h := c.beginHTTP2(); h != nil {
		h.Given(in)
		c.upgraded = true
		c.park()
	}
}

// prefaceLine is the request line of HTTP/2's preface.
const prefaceLine = "PRI * HTTP/2.0\r\n"

// http2Side is what package http2 knows of a connection: its socket, an io.ReadWriter, and its http2.Owner.
type http2Side struct{ c *Conn }

// Read fails if takeUnfinished has taken the connection, and drop will close it: no request of these bytes may be
// forwarded.
func (s http2Side) Read(b []byte) (int, error) {
	s.c.awaitPause()
	n, err := s.c.read(b)
	if n > 0 && s.c.isTaken() {
		return 0, net.ErrClosed
	}
	return n, err
}

func (s http2Side) Write(b []byte) (int, error) { return s.c.Write(b) }

func (s http2Side) Interrupt()            { s.c.socket.Interrupt() }
func (s http2Side) HangUp()               { s.c.HangUp() }
func (s http2Side) Pause(d time.Duration) { s.c.pause.add(d) }
func (s http2Side) Unsent(n int)          { s.c.server.handler.Unsent(s.c, n) }

func (s http2Side) Timeouts() (read, write time.Duration) {
	o := s.c.server.options()
	return o.ReadTimeout, o.WriteTimeout
}

func (s http2Side) Violated(rule string) {
	s.c.server.http2Errors.Add(1)
	s.c.server.log.Debug("a client violated HTTP/2", zap.String("rule", rule))
}

func (s http2Side) Open(st *http2.Stream, b *http2codec.RequestBlock, last bool) (http2.Request, *http2.Response) {
	s.c.life.requests.Add(1)
	return s.c.server.handler.Open(s.c, st, b, last)
}

func (s http2Side) Refused(violation string) { s.refuse(Malformed(violation)) }
func (s http2Side) TooManyStreams()          { s.refuse(s.c.server.options().tooManyStreams()) }
func (s http2Side) TooMuchUnread(bytes int)  { s.refuse(s.c.server.options().tooMuchUnread(bytes)) }

// refuse reports a request that got no stream.
func (s http2Side) refuse(f *Refusal) {
	f.Reset = true
	s.c.server.handler.Refused(s.c.Client.Peer, f)
}

// HTTP2 returns the HTTP/2 connection of c's streams.
func (c *Conn) HTTP2() *http2.Conn { return c.http2 }
