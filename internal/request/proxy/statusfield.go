package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strconv"
	"syscall"

	"adbuffer/internal/wire/exchange"
)

// statusError returns the error type of Proxy-Status for a request that ended with o, or "" if o is not an error. err
// says why no SSP responded; it is nil if an SSP responded or the request was not forwarded. deploy/logs/README.md lists
// the types.
func statusError(o exchange.Outcome, err *exchange.Error) string {
	switch o {
	case exchange.Deadline:
		if err != nil && err.Progress != exchange.NotSent {
			return "http_response_timeout"
		}
		return "connection_timeout"
	case exchange.ConnectFailed:
		return connectStatusError(err)
	case exchange.TLSFailed:
		return tlsStatusError(err)
	}
	if cause := o.Row().Cause; cause != exchange.NoCause {
		return cause
	}
	return ""
}

// connectStatusError returns the error type for a request that ended as connect_failed.
func connectStatusError(err error) string {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsTimeout:
		return "dns_timeout"
	case errors.As(err, &dns):
		return "dns_error"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection_refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "destination_ip_unroutable"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return "connection_timeout"
	}
	return "destination_unavailable"
}

// tlsStatusError returns the error type for a request that ended as tls_failed.
func tlsStatusError(err error) string {
	var (
		certificate *tls.CertificateVerificationError // the type of all verification errors of crypto/tls
		op          *net.OpError
	)
	switch {
	case errors.As(err, &certificate):
		return "tls_certificate_error"
	case errors.As(err, &op) && op.Op == "remote error":
		return "tls_alert_received"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "connection_timeout"
	}
	return "tls_protocol_error"
}

// nextProtocols are the ALPN ids (RFC 9209, section 2.1.3).
var nextProtocols = [exchange.Protocols]string{exchange.HTTP1: "http/1.1", exchange.HTTP1Pipelined: "http/1.1", exchange.HTTP2: "h2"}

// addProxyStatus adds the field Proxy-Status of RFC 9209.
func (r *request) addProxyStatus(w *response, e *end) {
	b := append(r.scratch[:0], "adbuffer"...)
	if kind := statusError(e.outcome, e.err); kind != "" {
		b = append(append(b, "; error="...), kind...)
	}
	if r.opts.ErrorDetail && e.ssp != nil {
		b = appendText(append(b, "; next-hop="...), e.ssp.Name())
	}
	if ex := e.exchange; ex != nil && e.outcome != exchange.Merged {
		if next := nextProtocols[ex.Protocol]; next != "" {
			b = appendText(append(b, "; next-protocol="...), next)
		}
		if e.err == nil {
			b = strconv.AppendInt(append(b, "; received-status="...), int64(ex.Response.Status), 10)
		}
	}
	if r.opts.ErrorDetail && e.detail != "" {
		b = appendText(append(b, "; details="...), e.detail)
	}
	w.addField("Proxy-Status", b)
	r.scratch = b
}

// appendText appends s as a String of RFC 9651. A byte that a String cannot hold becomes a question mark.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c > '~':
			b = append(b, '?')
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
