package proxy

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
)

// handshakeFault is why a TLS handshake failed: the label `reason`.
type handshakeFault uint8

const (
	handshakeTimeout handshakeFault = iota // not within read_timeout
	handshakeClosed                        // the client closed the connection
	handshakeRefused                       // the client sent an alert: it does not trust our certificate, say
	handshakeInvalid                       // we sent an alert: no version in common, no client certificate that we trust, no TLS at all
	handshakeFaults
)

var handshakeFaultNames = [handshakeFaults]string{"timeout", "closed", "refused", "invalid"}

// handshakes counts TLS handshakes with clients.
type handshakes struct {
	now           atomic.Int64 // under way
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
	case errors.As(err, &op) && op.Op == "remote error": // crypto/tls marks a received alert so
		return handshakeRefused
	case op != nil && op.Op == "local error": // and a sent one
		return handshakeInvalid
	case op != nil, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return handshakeClosed
	default:
		return handshakeInvalid
	}
}
