package proxy

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
)

// The protocols that clients may choose by ALPN. One that offers none of them,
// or no ALPN at all, gets HTTP/1.1.
const (
	protoHTTP2 = "h2"
	protoHTTP1 = "http/1.1"
)

// serverTLS returns the one configuration with which TLS is spoken to clients. It
// stays for good, with the keys of the session tickets that clients hold; what
// a handshake uses is Options.TLS of its moment, or what the GetConfigForClient of
// that says.
func (p *Proxy) serverTLS() *tls.Config {
	var last atomic.Pointer[adaptedTLS] // it seldom changes
	return &tls.Config{
		MinVersion: tls.VersionTLS12, // of no account
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			from := p.current().opts.TLS
			if from == nil {
				return nil, errors.New("TLS was turned off meanwhile")
			}
			if from.GetConfigForClient != nil {
				chosen, err := from.GetConfigForClient(hello)
				if err != nil {
					return nil, err
				}
				if chosen != nil {
					from = chosen
				}
			}
			a := last.Load()
			if a == nil || a.from != from {
				a = adaptTLS(from)
				last.Store(a)
			}
			return a.to, nil
		},
	}
}

// adaptedTLS is a configuration as the traffic side needs it, and what it was
// made of.
type adaptedTLS struct{ from, to *tls.Config }

// adaptTLS offers the protocols above, and has records as long as a write.
// crypto/tls begins with records of one packet, each a write of its own: an
// answer of 4 KB would take four system calls.
func adaptTLS(from *tls.Config) *adaptedTLS {
	to := from.Clone()
	to.NextProtos = []string{protoHTTP2, protoHTTP1}
	to.DynamicRecordSizingDisabled = true
	return &adaptedTLS{from, to}
}

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

// answerPlaintext tells a client that speaks HTTP where TLS is spoken.
func (c *clientConn) answerPlaintext(err error) {
	var head tls.RecordHeaderError
	if !errors.As(err, &head) || head.Conn == nil || !slices.Contains([]string{"GET /", "HEAD ", "POST "}, string(head.RecordHeader[:])) {
		return
	}
	g := c.proxy.current()
	f, id := malformed("TLS is spoken here; see server.tls"), g.newRequestID()
	g.ended(nil, f.outcome, 0)
	c.proxy.reportUnread(g, c.peer, id, f)
	c.Conn.Write(g.wholeResponse(f, id)) //nolint:errcheck // it is refused either way
}

// ConnectionState is that of TLS, zero over cleartext. fasthttp's server finds
// the protocol in it.
func (c *clientConn) ConnectionState() tls.ConnectionState {
	if c.tls == nil {
		return tls.ConnectionState{}
	}
	return c.tls.ConnectionState()
}
