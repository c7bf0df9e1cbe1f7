// Package dial is DNS, TCP, TLS and ALPN under one deadline.
//
// A Dialer knows one SSP: where its endpoints are (Addresses), and how to open
// a connection to one of the addresses (Dial). The pool decides which address is dialled,
// and when.
package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"adbuffer/internal/socket"
	"adbuffer/internal/upstream"
)

// Options are the settings of one SSP's dialer; the names in the comments are
// those of config/adbuffer.yaml.
type Options struct {
	Endpoints upstream.Endpoints // endpoints
	Mode      Mode               // protocol
	// ConnectTimeout (timeouts.connect) bounds the TCP connection, and the wait
	// for a look-up. TLSTimeout (timeouts.tls_handshake) bounds the handshake;
	// unused on cleartext. Both must be positive.
	ConnectTimeout, TLSTimeout time.Duration
	TLS                        TLS // tls; unused on cleartext
	// Sources (source_addresses) are the local addresses that connections come from,
	// in turn; none leaves it to the system.
	Sources []netip.Addr

	// Lookup replaces the system's resolver; nil does not.
	Lookup Lookup
	// Warn, if not nil, receives errors that failed no dial. A look-up failed while other or older
	// results are in use, a look-up returned refused addresses, or a client certificate could not
	// be read again. It is called at most once for each, from any goroutine, and must not block for
	// long.
	Warn func(error)
}

// Dialer opens connections to one SSP. Its methods are safe for concurrent use.
type Dialer struct {
	opts     Options  // but for its timeouts
	timeouts timeouts // in force
	resolver *resolver
	sources  *sources
	tls      *clientTLS // nil on cleartext
	hellos   hellos
	tcp      net.Dialer
	delay    time.Duration // connectDelay
	stats    counters
}

// Result is a new connection, and what it took.
type Result struct {
	// Conn is Socket, or the TLS connection on it. The caller closes it.
	Conn   net.Conn
	Socket *socket.Conn
	// Protocol is the protocol that TLS or the configuration chose.
	Protocol upstream.Protocol
	// TCP and TLS are how long these steps took, 0 if a step was not begun. They are also set if
	// Dial fails.
	TCP, TLS time.Duration
	// Resumed: the TLS handshake took up an earlier session.
	Resumed bool
	// Raced is also set if Dial fails.
	Raced

	small bool // the ClientHello was small
	heard bool // a byte came from the SSP
}

// Raced is how the connection attempts of one dial went.
type Raced struct {
	// At is the address that the connection leads to, or that the error of Dial is about: an
	// index of Dial's addresses.
	At int
	// Lost are the errors of the other attempts, by the same index: attempts that failed or were
	// clearly slower. nil if there was one attempt.
	Lost []error
}

// New returns a dialer, or says what is wrong with its options. It reads the
// files that opts.TLS names, and opens no connection.
func New(opts Options) (*Dialer, error) {
	if len(opts.Endpoints.All) == 0 {
		return nil, errors.New("an SSP needs at least one endpoint")
	}
	encrypted := opts.Endpoints.Scheme == "https"
	if err := opts.Mode.check(opts.Endpoints.Scheme); err != nil {
		return nil, err
	}
	if opts.ConnectTimeout <= 0 {
		return nil, fmt.Errorf("timeouts.connect: %v is not positive", opts.ConnectTimeout)
	}
	if encrypted && opts.TLSTimeout <= 0 {
		return nil, fmt.Errorf("timeouts.tls_handshake: %v is not positive", opts.TLSTimeout)
	}
	if opts.Warn == nil {
		opts.Warn = func(error) {}
	}
	d := &Dialer{opts: opts, tcp: newTCPDialer(), delay: connectDelay, sources: newSources(opts.Sources)}
	if len(opts.Sources) > 0 {
		d.tcp.Control = bindWithoutPort
	}
	d.timeouts.set(opts.ConnectTimeout, opts.TLSTimeout)
	if encrypted {
		var err error
		if d.tls, err = newClientTLS(&opts.TLS, opts.Mode, opts.Warn, &d.stats); err != nil {
			return nil, err
		}
	}
	d.resolver = newResolver(d.sources, opts.Endpoints.All, opts.Lookup, &d.timeouts, opts.Warn, &d.stats)
	return d, nil
}

// Protocol is what all connections will speak, or Unknown if ALPN decides.
func (d *Dialer) Protocol() upstream.Protocol { return d.opts.Mode.protocol(d.tls != nil) }

// Addresses returns the SSP's current addresses. Endpoints take turns, so an endpoint with
// fewer addresses is repeated. Callers must not change the slice, which stays the same
// while the addresses do.
//
// DNS results are new for 20 s. Then the first caller starts a look-up in the background, and all
// callers take the last good result. They wait only if there is none from the last five minutes:
// until the look-up ends, ctx ends, or timeouts.connect is over. Errors are *upstream.Error.
func (d *Dialer) Addresses(ctx context.Context) ([]upstream.Address, error) {
	return d.resolver.addresses(ctx)
}

// SetEndpoints changes the endpoints that Addresses looks up. Their scheme must stay.
func (d *Dialer) SetEndpoints(e upstream.Endpoints) {
	if e.Scheme != d.opts.Endpoints.Scheme {
		panic("BUG: the scheme of a dialer never changes")
	}
	d.resolver.set(e.All)
}

// Close ends the look-ups under way; Addresses fails from then on. Connections and dials continue.
func (d *Dialer) Close() { d.resolver.close() }

// Dial connects to one of addrs, which Addresses has returned for one host. It tries them in order
// (Happy Eyeballs, RFC 8305): the next one as soon as the one before has failed, or beside it once
// that has taken connectDelay. timeouts.connect bounds all of them together, and each gets at most
// one SYN and its repetitions. The handshake follows with the first that connects.
//
// On TLS in mode Auto Dial offers HTTP/2 only if offerHTTP2; the other modes say what they offer. It
// returns soon after ctx ends, and has closed the sockets then.
//
// With TLS 1.3 the peer judges our client certificate after the handshake has
// ended for us: its refusal is then found by the first read.
//
// Errors are *upstream.Error with Progress NotSent.
func (d *Dialer) Dial(ctx context.Context, offerHTTP2 bool, addrs ...upstream.Address) (Result, error) {
	for _, addr := range addrs {
		if kind := upstream.Undialable(addr.AddrPort.Addr()); kind != "" {
			return Result{}, connectFailed(addr.String()+": "+kind+" address is never dialled", nil)
		}
	}
	offer := d.opts.Mode.offer(offerHTTP2)
	began := time.Now()
	r, err := d.connectAnyHello(ctx, addrs, offer)
	if err == nil || d.opts.Mode != Auto || !errors.Is(err, errInadequate) {
		return r, err
	}
	// The SSP chose HTTP/2, and then a cipher suite that HTTP/2 prohibits. HTTP/1 works if
	// HTTP/2 is not offered. Both attempts together must not take longer than one dial may.
	d.stats.http2Refused.Add(1)
	ctx, cancel := context.WithDeadline(ctx, began.Add(d.timeouts.connect()+d.timeouts.handshake()))
	defer cancel()
	raced := r.Raced
	r, err = d.connectAnyHello(ctx, addrs[raced.At:raced.At+1], d.opts.Mode.offer(false))
	r.Raced = raced
	return r, err
}

// connect is one TCP connection and, on TLS, one handshake. small asks for a small
// ClientHello, also at an address that is not known to need it.
func (d *Dialer) connect(ctx context.Context, addrs []upstream.Address, offer []string, small bool) (Result, error) {
	var r Result
	began := time.Now()
	sock, raced, err := d.openSocket(ctx, addrs)
	r.TCP, r.Raced = time.Since(began), raced
	if err != nil {
		return r, err
	}
	if d.tls == nil {
		r.Conn, r.Socket, r.Protocol = sock, sock, d.Protocol()
		return r, nil
	}
	addr := addrs[raced.At]
	began = time.Now()
	sock.Records()
	r.small = small || d.hellos.needsSmall(addr.AddrPort)
	conn, state, err := d.handshake(ctx, sock, addr, offer, r.small)
	r.TLS = time.Since(began)
	r.heard = sock.HasReceived()
	if err == nil {
		r.Protocol, err = d.negotiated(state, addr, offer)
	}
	if err != nil {
		d.stats.handshakeFailed(err)
		_ = sock.Close()
		return r, err
	}
	d.stats.handshaken(&state)
	r.Conn, r.Socket, r.Resumed = conn, sock, state.DidResume
	return r, nil
}
