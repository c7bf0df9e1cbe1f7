package dial

import (
	"crypto/tls"
	"errors"
	"sync/atomic"

	"adbuffer/internal/handshake"
	"adbuffer/internal/socket"
	"adbuffer/internal/upstream"
)

// Stats holds a dialer's counts since New.
type Stats struct {
	Lookups           uint64           // look-ups begun, one for each name
	LookupsFailed     uint64           // look-ups without a usable address
	AddrsRefused      uint64           // addresses in DNS responses of a kind that is never dialled, such as link-local
	AddrsBeyond       uint64           // addresses in DNS responses beyond the number that is used for one name
	HandshakesFull    uint64           // TLS handshakes from scratch that brought a connection
	HandshakesResumed uint64           // TLS handshakes that resumed a session
	HandshakesFailed  uint64           // TLS handshakes that brought no connection
	Handshakes        handshake.Totals // the same handshakes, by version, group and reason
	SmallHellosGood   uint64           // second attempts with a small ClientHello that completed the handshake
	SmallHellosFailed uint64           // second attempts that failed too
	HTTP2Refused      uint64           // connections closed because HTTP/2 prohibits their cipher suite
	CertsReloaded     uint64           // new versions of the client certificate taken into use
	CertsBroken       uint64           // new versions of the client certificate that could not be used
	BytesSent         uint64           // at the sockets, TLS included
	BytesReceived     uint64           // as BytesSent
}

// counters are the atomic counters behind Stats.
type counters struct {
	lookups, lookupsFailed, addrsRefused, addrsBeyond                 atomic.Uint64
	handshakesFull, handshakesResumed, handshakesFailed, http2Refused atomic.Uint64
	certsReloaded, certsBroken                                        atomic.Uint64
	smallHellosGood, smallHellosFailed                                atomic.Uint64
	handshakes                                                        handshake.Counts
	traffic                                                           socket.Traffic
}

func (c *counters) handshaken(state *tls.ConnectionState) {
	c.handshakes.Succeeded(state)
	if state.DidResume {
		c.handshakesResumed.Add(1)
	} else {
		c.handshakesFull.Add(1)
	}
}

// handshakeFailed counts an error of tlsError or negotiated.
func (c *counters) handshakeFailed(err error) {
	c.handshakesFailed.Add(1)
	reason := handshake.ALPN
	if !errors.Is(err, upstream.ErrALPN) {
		reason = handshake.ReasonOf(errors.Unwrap(err))
	}
	c.handshakes.Failed(reason)
}

// Stats returns the current counts.
func (d *Dialer) Stats() Stats {
	c := &d.stats
	return Stats{
		Lookups: c.lookups.Load(), LookupsFailed: c.lookupsFailed.Load(),
		AddrsRefused: c.addrsRefused.Load(), AddrsBeyond: c.addrsBeyond.Load(),
		HandshakesFull: c.handshakesFull.Load(), HandshakesResumed: c.handshakesResumed.Load(),
		HandshakesFailed: c.handshakesFailed.Load(), Handshakes: c.handshakes.Load(), HTTP2Refused: c.http2Refused.Load(),
		SmallHellosGood: c.smallHellosGood.Load(), SmallHellosFailed: c.smallHellosFailed.Load(),
		CertsReloaded: c.certsReloaded.Load(), CertsBroken: c.certsBroken.Load(),
		BytesSent: c.traffic.Sent(), BytesReceived: c.traffic.Received(),
	}
}
