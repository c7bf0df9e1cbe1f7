package dial

import (
	"crypto/tls"
	"fmt"
	"slices"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/handshake"
)

// Mode is the setting protocol of an SSP: which HTTP version is used towards it.
type Mode string

// The modes.
const (
	Auto           Mode = "auto"            // https: ALPN chooses HTTP/2 or HTTP/1.1; http: HTTP/1.1
	HTTP1          Mode = "http1"           // HTTP/1.1
	HTTP1Pipelined Mode = "http1-pipelined" // HTTP/1.1, several requests outstanding
	HTTP2          Mode = "http2"           // https: only HTTP/2
	H2C            Mode = "h2c"             // http: HTTP/2 with prior knowledge
)

// Protocol returns the protocol of all connections, or Unknown if ALPN decides.
func (m Mode) Protocol(encrypted bool) exchange.Protocol {
	switch {
	case m == HTTP1Pipelined:
		return exchange.HTTP1Pipelined
	case m == HTTP2 || m == H2C:
		return exchange.HTTP2
	case m == Auto && encrypted:
		return exchange.Unknown
	}
	return exchange.HTTP1
}

// ALPN names. RFC 7301, section 6; RFC 9113, section 3.1.
const (
	alpnHTTP2 = "h2"
	alpnHTTP1 = "http/1.1"
)

// offer returns the protocols that adbuffer offers by ALPN. allowHTTP2 matters only for Auto.
func (m Mode) offer(allowHTTP2 bool) []string {
	switch {
	case m == HTTP2:
		return []string{alpnHTTP2}
	case m == Auto && allowHTTP2:
		return []string{alpnHTTP2, alpnHTTP1}
	}
	return []string{alpnHTTP1}
}

// negotiated returns the protocol after a handshake. A peer that ignores ALPN uses HTTP/1.1.
func (d *Dialer) negotiated(state tls.ConnectionState, addr exchange.Address, offer []string) (exchange.Protocol, error) {
	chosen := state.NegotiatedProtocol
	switch {
	case chosen == alpnHTTP2 && !handshake.AllowsHTTP2(&state):
		return exchange.Unknown, tlsFailed(fmt.Sprintf("%s: the peer chose HTTP/2 over %s with %s, which RFC 9113 prohibits; see protocol",
			addr, tls.VersionName(state.Version), tls.CipherSuiteName(state.CipherSuite)), errInadequate)
	case chosen == alpnHTTP2:
		return exchange.HTTP2, nil
	case slices.Contains(offer, alpnHTTP1) && d.opts.Mode == HTTP1Pipelined:
		return exchange.HTTP1Pipelined, nil
	case slices.Contains(offer, alpnHTTP1):
		return exchange.HTTP1, nil
	case chosen == "":
		chosen = "nothing, like a peer without ALPN"
	}
	return exchange.Unknown, d.alpnError(addr, offer, chosen, exchange.ErrALPN)
}

// errInadequate says that HTTP/2 on this connection would end with INADEQUATE_SECURITY.
var errInadequate = fmt.Errorf("%w: HTTP/2 is prohibited over this cipher suite", exchange.ErrALPN)
