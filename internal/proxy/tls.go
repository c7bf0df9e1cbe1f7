package proxy

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"adbuffer/internal/socket"
	"adbuffer/internal/upstream"
)

// The protocols that clients may choose by ALPN. One that offers none of them,
// or no ALPN at all, gets HTTP/1.1.
const (
	protoHTTP2 = "h2"
	protoHTTP1 = "http/1.1"
)

// serverTLS returns c, nil for cleartext, as the traffic side needs it,
// whatever c itself and its GetConfigForClient say: with the protocols above,
// and with records as long as a write. crypto/tls begins with records of one
// packet, each a write of its own: an answer of 4 KB would take four system
// calls.
func serverTLS(c *tls.Config) *tls.Config {
	if c == nil {
		return nil
	}
	c = c.Clone()
	c.NextProtos = []string{protoHTTP2, protoHTTP1}
	c.DynamicRecordSizingDisabled = true
	if forClient := c.GetConfigForClient; forClient != nil {
		type adapted struct{ from, to *tls.Config }
		var last atomic.Pointer[adapted] // it seldom changes
		c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			from, err := forClient(hello)
			if err != nil || from == nil {
				return from, err
			}
			a := last.Load()
			if a == nil || a.from != from {
				a = &adapted{from, from.Clone()}
				a.to.NextProtos, a.to.DynamicRecordSizingDisabled = c.NextProtos, true
				last.Store(a)
			}
			return a.to, nil
		}
	}
	return c
}

// tlsSocket is what TLS reads and writes.
type tlsSocket struct{ *socket.Conn }

// Write implements net.Conn.
func (s tlsSocket) Write(b []byte) (int, error) { return s.WriteInBurst(b) }

// proxied is a connection that says in its first bytes whose it is (the PROXY
// protocol). ReadHeader reads them, and returns the client's address, which is
// zero for one of a unix socket; NetConn is the connection behind them.
type proxied interface {
	net.Conn
	NetConn() net.Conn
	ReadHeader() (client netip.Addr, err error)
}

// Handshake does what comes before the first request: it reads the PROXY header
// and shakes hands. fasthttp's server calls it on the connection's goroutine,
// whenever it starts to serve it, also after it was parked; only the first call
// does anything.
func (c *clientConn) Handshake() error {
	if c.greeted {
		return nil
	}
	c.greeted = true
	if c.header != nil {
		peer, err := c.header.ReadHeader()
		if err != nil {
			return err
		}
		c.peer, c.header = peer, nil
	}
	if c.tls != nil {
		if err := c.shakeHands(); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != greeting {
		return net.ErrClosed
	}
	c.phase = serving
	return nil
}

// shakeHands gives the client read_timeout for all of its handshake.
func (c *clientConn) shakeHands() error {
	c.by = time.Now().Add(c.proxy.current().opts.ReadTimeout)
	c.SetReadDeadline(c.by) //nolint:errcheck // a closed socket fails the handshake
	err := c.tls.Handshake()
	c.proxy.handshakes.count(c.tls, err)
	if err != nil {
		c.answerPlaintext(err)
		return err
	}
	c.by = time.Time{}
	return c.SetReadDeadline(time.Time{})
}

// answerPlaintext tells a client that speaks HTTP where TLS is spoken.
func (c *clientConn) answerPlaintext(err error) {
	var head tls.RecordHeaderError
	if !errors.As(err, &head) || head.Conn == nil || !slices.Contains([]string{"GET /", "HEAD ", "POST "}, string(head.RecordHeader[:])) {
		return
	}
	g := c.proxy.current()
	g.ended(nil, upstream.BadRequest, 0)
	answer := g.wholeAnswer(upstream.BadRequest, fasthttp.StatusBadRequest, "TLS is spoken here; see server.tls")
	c.Conn.Write(answer) //nolint:errcheck // it is refused either way
}

// ConnectionState is that of TLS, zero over cleartext. fasthttp's server finds
// the protocol in it.
func (c *clientConn) ConnectionState() tls.ConnectionState {
	if c.tls == nil {
		return tls.ConnectionState{}
	}
	return c.tls.ConnectionState()
}

// handshakeFault is why a TLS handshake failed: the label `reason`.
type handshakeFault uint8

const (
	handshakeTimeout handshakeFault = iota // not within read_timeout
	handshakeClosed                        // the client left
	handshakeRefused                       // the client said no: it does not trust our certificate, say
	handshakeInvalid                       // we said no: no version in common, no client certificate that we trust, no TLS at all
	handshakeFaults
)

var handshakeFaultNames = [handshakeFaults]string{"timeout", "closed", "refused", "invalid"}

// handshakes counts TLS handshakes with clients.
type handshakes struct {
	full, resumed atomic.Uint64
	failed        [handshakeFaults]atomic.Uint64
}

func (h *handshakes) count(c *tls.Conn, err error) {
	switch {
	case err != nil:
		h.failed[handshakeFaultOf(err)].Add(1)
	case c.ConnectionState().DidResume:
		h.resumed.Add(1)
	default:
		h.full.Add(1)
	}
}

func handshakeFaultOf(err error) handshakeFault {
	var op *net.OpError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return handshakeTimeout
	case errors.As(err, &op) && op.Op == "remote error": // so crypto/tls marks an alert that came
		return handshakeRefused
	case op != nil && op.Op == "local error": // and one that was sent
		return handshakeInvalid
	case op != nil, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return handshakeClosed
	default:
		return handshakeInvalid
	}
}
