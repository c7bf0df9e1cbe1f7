package handshake

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
)

// Reason is why a handshake failed: the label `reason`.
type Reason uint8

// The reasons.
const (
	Timeout     Reason = iota // not within the time for it
	Closed                    // the connection was closed or reset
	Refused                   // the peer sent an alert: it does not trust our certificate, say
	Certificate               // we do not trust the peer's certificate, or it has none
	Version                   // no version in common
	Mismatch                  // no group or cipher suite in common
	ALPN                      // no protocol in common
	Invalid                   // anything else, such as no TLS at all
	reasons
)

var reasonNames = [reasons]string{"timeout", "closed", "refused", "certificate", "version", "mismatch", "alpn", "invalid"}

const reasonsHelp = "not in time (timeout), connection closed (closed), an alert of the peer (refused), a certificate that we do not trust or that is missing (certificate), " +
	"no version (version), no group or cipher suite (mismatch) or no application protocol (alpn) in common, or anything else, such as no TLS at all (invalid)."

// errorTexts are the beginnings of errors of crypto/tls that have no type. The tests
// provoke each.
var errorTexts = []struct {
	text   string
	reason Reason
}{
	{"tls: client offered only unsupported versions", Version},
	{"tls: server selected unsupported protocol version", Version},
	{"tls: no cipher suite supported by both", Mismatch},
	{"tls: no key exchanges supported by both", Mismatch},
	{"tls: client didn't provide a certificate", Certificate},
	{"tls: client requested unsupported application protocols", ALPN},
	{"tls: server selected unadvertised ALPN protocol", ALPN},
}

// alerts of the peer that say more than that it refused. RFC 8446, section 6.2.
var alerts = []struct {
	code   tls.AlertError
	reason Reason
}{{40, Mismatch}, {70, Version}, {120, ALPN}} // handshake_failure, protocol_version, no_application_protocol

// ReasonOf says why a handshake failed with err.
func ReasonOf(err error) Reason {
	var op *net.OpError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return Timeout
	case errors.As(err, &certificate):
		return Certificate
	case errors.As(err, &op) && op.Op == "remote error": // crypto/tls marks a received alert so
		for _, a := range alerts { // the type of the alert is not exported, but its text is
			if op.Err.Error() == a.code.Error() {
				return a.reason
			}
		}
		return Refused
	case op != nil && op.Op == "local error": // and a sent one
		return Invalid
	case op != nil, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.Is(err, context.Canceled):
		return Closed
	}
	for _, t := range errorTexts {
		if strings.HasPrefix(err.Error(), t.text) {
			return t.reason
		}
	}
	return Invalid
}
