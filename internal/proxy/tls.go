package proxy

import (
	"crypto/tls"
	"errors"
	"sync/atomic"
)

// The protocols that clients may choose by ALPN. A client that offers neither, or no ALPN
// at all, gets HTTP/1.1.
const (
	protoHTTP2 = "h2"
	protoHTTP1 = "http/1.1"
)

// serverTLS returns the TLS configuration of the listener. It is never replaced, so the keys of
// session tickets stay the same. A handshake uses the current Options.TLS, or the result of its
// GetConfigForClient.
func (p *Proxy) serverTLS() *tls.Config {
	var last atomic.Pointer[adaptedTLS] // it rarely changes
	return &tls.Config{
		MinVersion: tls.VersionTLS12, // has no effect
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

// adaptedTLS is a configuration for the traffic side (to), and its original.
type adaptedTLS struct{ from, to *tls.Config }

// adaptTLS offers the protocols above, and makes records as long as a write. crypto/tls begins with
// records of one packet, and writes each by itself: a response of 4 KB would take four system
// calls.
func adaptTLS(from *tls.Config) *adaptedTLS {
	to := from.Clone()
	to.NextProtos = []string{protoHTTP2, protoHTTP1}
	to.DynamicRecordSizingDisabled = true
	return &adaptedTLS{from, to}
}

// ConnectionState returns the state of TLS. Over cleartext it holds only the protocol, which
// fasthttp's server needs for HTTP/2.
func (c *clientConn) ConnectionState() tls.ConnectionState {
	if c.tls == nil {
		if c.isHTTP2.Load() {
			return tls.ConnectionState{NegotiatedProtocol: protoHTTP2}
		}
		return tls.ConnectionState{}
	}
	return c.tls.ConnectionState()
}
