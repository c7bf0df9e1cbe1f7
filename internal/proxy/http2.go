package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"go.uber.org/zap"
	"golang.org/x/net/http2"
)

// HTTP/2 is served by golang.org/x/net's server: frames, HPACK, flow control and
// the floods that RFC 9113, section 10.5, warns of are its business, and have
// been for years. It calls serveStream for each request, on a goroutine of its
// own, which hands it to the path that requests of HTTP/1 take.
//
// It is offered over TLS alone, by ALPN. The preface of one who knows better is
// a malformed request.

const (
	// maxStreams is how many requests a client may have open on a connection.
	maxStreams = 250
	// How much of their bodies a client may send ahead of us. The handler reads
	// at once, or refuses, so this is held for moments only; bodies that are read
	// count against max_buffered_bytes.
	streamWindow     = 64 << 10
	connectionWindow = 256 << 10
)

// maxHeaderList is how long a header list the server of HTTP/2 takes, which
// counts 32 bytes for each field. It must be more than max_header_bytes, so that
// it is us who refuse what is longer; beyond this it answers 431 by itself.
func maxHeaderList(maxHeaderBytes int) int { return 2*maxHeaderBytes + 8<<10 }

// serveHTTP2 serves a connection on which the client chose HTTP/2. It returns
// when the connection and all its streams have ended.
func (p *Proxy) serveHTTP2(nc net.Conn) error {
	c := nc.(*clientConn)
	o := &p.current().opts
	// Both serve this connection alone, so that it can be ended alone, and has
	// the timeouts of its moment.
	hs := &http.Server{
		MaxHeaderBytes: maxHeaderList(o.MaxHeaderBytes), IdleTimeout: o.IdleTimeout, ErrorLog: p.http2Logger,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: streamWindow, MaxReceiveBufferPerConnection: connectionWindow,
			CountError: p.countHTTP2Error,
		},
	}
	h2 := new(http2.Server)                               //nolint:staticcheck // net/http's can only be given whole listeners
	if err := http2.ConfigureServer(hs, h2); err != nil { //nolint:staticcheck // as above
		return err
	}
	c.mu.Lock()
	if c.phase != serving {
		c.mu.Unlock()
		return net.ErrClosed
	}
	c.http2 = hs
	c.mu.Unlock()

	c.spoken.Store(true)
	c.heard.Store(true)                                                                                               // a GOAWAY says which of its requests are served
	h2.ServeConn(http2Conn{c.tls, c}, &http2.ServeConnOpts{BaseConfig: hs, Handler: http.HandlerFunc(c.serveStream)}) //nolint:staticcheck // as above
	c.Close()                                                                                                         //nolint:errcheck // it has been closed
	return nil
}

// countHTTP2Error is told what a client broke.
func (p *Proxy) countHTTP2Error(kind string) {
	if kind == "stream_STREAM_CLOSED_closed" { // bytes of a body that came when it had been refused
		return
	}
	p.http2Errors.Add(1)
	p.log.Debug("a client broke HTTP/2", zap.String("kind", kind))
}

// http2Conn is what the server of HTTP/2 reads, writes and closes.
type http2Conn struct {
	*tls.Conn
	client *clientConn
}

// Close implements net.Conn.
func (c http2Conn) Close() error { return c.client.Close() }

// endHTTP2Locked sends a GOAWAY. The connection ends once the streams that the
// client has opened have been answered.
func (c *clientConn) endHTTP2Locked() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	c.http2.Shutdown(now) //nolint:errcheck // it has no connections of its own, and tells ours
}

// serveStream is the handler of HTTP/2.
func (c *clientConn) serveStream(w http.ResponseWriter, req *http.Request) {
	c.mu.Lock()
	if c.phase == closed {
		c.mu.Unlock()
		return
	}
	c.proxy.streams.Add(1)
	c.mu.Unlock()
	defer c.proxy.streams.Add(-1)

	s := acquireStream(w, req)
	defer s.release()
	c.proxy.handleStream(c, s, w, req)
}
