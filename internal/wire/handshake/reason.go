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

// Reason is the reason why a TLS handshake failed. Its name is the value of the label `reason`.
type Reason uint8

// The reasons.
const (
	Timeout     Reason = iota // the handshake took longer than its timeout
	Closed                    // the connection was closed or reset
	Refused                   // the peer sent an alert, for example because it does not trust adbuffer's certificate
	Certificate               // adbuffer does not trust the peer's certificate, or the peer has none
	Version                   // the peers have no TLS version in common
	Mismatch                  // the peers have no group or cipher suite in common
	ALPN                      // the peers have no application protocol in common
	Invalid                   // any other reason, such as a peer without TLS
	reasons
)

var reasonNames = [reasons]string{"timeout", "closed", "refused", "certificate", "version", "mismatch", "alpn", "invalid"}

// ReasonsHelp explains the values of the label `reason`.
const ReasonsHelp = "the handshake took too long (timeout), the connection was closed (closed), the peer sent an alert (refused), the peer's certificate is missing or not trusted by adbuffer (certificate), " +
	"the peers have no TLS version (version), no group or cipher suite (mismatch) or no application protocol (alpn) in common, or any other reason, such as a peer without TLS (invalid)."

// errorTexts maps errors of crypto/tls that have no type to reasons, by the beginning of their text. The tests provoke
// each error.
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

// alerts lists the alerts of a peer that have a more precise reason than Refused. RFC 8446, section 6.2.
var alerts = []struct {
	code   tls.AlertError
	reason Reason
}{{40, Mismatch}, {70, Version}, {120, ALPN}} // handshake_failure, protocol_version, no_application_protocol

// ReasonOf returns the reason of the handshake error err.
func ReasonOf(err error) Reason {
	var op *net.OpError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return Timeout
	case errors.As(err, &certificate):
		return Certificate
	case errors.As(err, &op) && op.Op == "remote error": // the operation of an error that reports a received alert
		for _, a := range alerts { // the type of the alert is not exported, but its text is
			if op.Err.Error() == a.code.Error() {
				return a.reason
			}
		}
		return Refused
	case op != nil && op.Op == "local error": // errors.As has set op above; the operation of an error that reports a sent alert
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
