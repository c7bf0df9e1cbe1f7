package dial

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"adbuffer/internal/machine/lag"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/handshake"
)

func connectFailed(detail string, cause error) error {
	return &exchange.Error{Outcome: exchange.ConnectFailed, Progress: exchange.NotSent, Detail: detail, Err: cause}
}

func tlsFailed(detail string, cause error) error {
	return &exchange.Error{Outcome: exchange.TLSFailed, Progress: exchange.NotSent, Detail: detail, Err: cause}
}

// tcpError returns the error of a failed TCP connection to addr. ctx is the context of Dial. from is the local
// address, or the zero Addr if the system chose it.
func (d *Dialer) tcpError(ctx context.Context, addr exchange.Address, from netip.Addr, err error) error {
	// The text around the cause would only repeat the address.
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		err = op.Err
	}
	what := addr.String() + ": no TCP connection"
	if from.IsValid() {
		what += " from " + from.String()
	}
	switch local := localError(what, err); {
	case local != nil:
		return local
	case ctx.Err() != nil:
		return connectFailed(addr.String()+": "+describeEnd(ctx)+" before the TCP connection was open", ctx.Err())
	case exchange.IsTimeout(err):
		return connectFailed(fmt.Sprintf("%s: no TCP connection within %v; see timeouts.connect", addr, d.timeouts.connect()), err)
	}
	return connectFailed(what, err)
}

// tlsError returns the error of a failed handshake with addr. ctx is the context of Dial. certRequested says that the
// peer requested a client certificate, received that it sent any byte.
func (d *Dialer) tlsError(ctx context.Context, addr exchange.Address, offer []string, certRequested, received bool, err error) error {
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		chain     *handshake.ChainError
		alert     *net.OpError
	)
	what := "the TLS handshake failed"
	switch {
	case ctx.Err() != nil:
		what, err = describeEnd(ctx)+" during the TLS handshake", ctx.Err()
	case errors.Is(err, lag.ErrTooMuch):
		what = err.Error()
	case errors.Is(err, context.DeadlineExceeded):
		what = fmt.Sprintf("no TLS handshake within %v; see timeouts.tls_handshake", d.timeouts.handshake()) + d.noReply(received)
	case errors.Is(err, syscall.ECONNRESET):
		what += d.noReply(received)
	case errors.As(err, &chain):
		what = chain.Error()
	case errors.As(err, &authority):
		what = "no trusted authority signed its certificate; see tls.ca_file"
	case errors.As(err, &name):
		what = "its certificate is for another name; see tls.server_name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		what = "its certificate has expired, or is not valid yet"
		if invalid.Cert.VerifyHostname(cmp.Or(d.opts.TLS.ServerName, addr.Host)) != nil { // x509 checks the dates first
			what += ", and is for another name; see tls.server_name"
		}
	case handshake.ReasonOf(err) == handshake.ALPN:
		return d.alpnError(addr, offer, "none of these", fmt.Errorf("%w: %w", exchange.ErrALPN, err))
	case certRequested && errors.As(err, &alert) && alert.Op == "remote error":
		what = "it requested a client certificate and refused adbuffer's; see tls.cert_file"
	}
	return tlsFailed(addr.String()+": "+what, err)
}

// noReply returns a hint for a ClientHello without a reply, or "". Some firewalls expect a ClientHello in one packet,
// but the key share of a group with ML-KEM makes it longer.
func (d *Dialer) noReply(received bool) string {
	if received || !d.opts.TLS.Policy.AllowsHybrid() {
		return ""
	}
	return "; it sent nothing: if a firewall drops a ClientHello over 1,400 bytes, leave the groups with MLKEM out of tls.groups"
}

// describeEnd says how ctx, the context of Dial, ended. Its deadline bounds all steps of a dial together.
func describeEnd(ctx context.Context) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "the dial ran out of time (timeouts.connect and timeouts.tls_handshake)"
	}
	return "the dial was cancelled"
}

func (d *Dialer) alpnError(addr exchange.Address, offer []string, chosen string, cause error) error {
	return tlsFailed(fmt.Sprintf("%s: adbuffer offered %s, and the peer chose %s; see protocol (%s)",
		addr, strings.Join(offer, " and "), chosen, d.opts.Mode), cause)
}
