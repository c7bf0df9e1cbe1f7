// Package dial opens connections to SSPs: DNS, TCP, TLS and ALPN under one deadline.
//
// A Dialer knows one SSP: where its endpoints are (Addresses), and how to open a connection to one of
// the addresses (Dial). The pool decides which address is dialled, and when.
package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"adbuffer/internal/machine/lag"
	"adbuffer/internal/wire/cpushare"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/socket"
)

// Options are the settings of one SSP's dialer. The comments name them as config/reference.yaml does.
type Options struct {
	Endpoints exchange.Endpoints // endpoints; at least one
	Mode      Mode               // protocol; HTTP2 is for https, H2C for http
	// ConnectTimeout (timeouts.connect) bounds the TCP connection, and the wait for a look-up.
	// TLSTimeout (timeouts.tls_handshake) bounds the handshake; unused on cleartext. Both must be
	// positive.
	ConnectTimeout, TLSTimeout time.Duration
	TLS                        TLS // tls; unused on cleartext
	// Sources (source_addresses) are the local addresses of connections, used in turn. If empty,
	// the system chooses.
	Sources []netip.Addr
	// Lag extends both timeouts by the lag of this process. It must be in use while Dial or Addresses runs. nil =
	// timeouts are not extended.
	Lag *lag.Meter
	// CPU bounds the CPU of TLS handshakes, which wait for turns of Party. nil = no bound.
	CPU   *cpushare.Share
	Party cpushare.Party

	// Lookup looks names up; nil = the system's resolver.
	Lookup Lookup
	// FreeFile is called if a dial fails with err. If err says that too many files are open, FreeFile may close a
	// file that is not needed now, and return true; then the dial is tried once more. Any goroutine may call it. It
	// may be nil.
	FreeFile func(err error) bool
	// Warn, if not nil, receives errors that do not make a dial fail: a look-up failed while other or older results
	// are in use, a look-up returned addresses that are never dialled, or a client certificate could not be read
	// again. Any goroutine may call Warn, once for each error. It must not block for long.
	Warn func(error)
	// Changed, if not nil, is called when the addresses of a name have changed. The call may come from any goroutine, so
	// Changed must not block for long.
	Changed func(AddressChange)
}

// AddressChange is a change of the addresses of a name. Came or Went may be empty.
type AddressChange struct {
	Host  string       `json:"host"`
	At    time.Time    `json:"at"`
	Came  []netip.Addr `json:"came"`
	Went  []netip.Addr `json:"went"`
	InUse []netip.Addr `json:"in_use"` // all addresses after the change
}

// Dialer opens connections to one SSP. Its methods are safe for concurrent use.
type Dialer struct {
	opts     Options  // its timeouts are not used; see timeouts
	timeouts timeouts // current timeouts
	resolver *resolver
	sources  *sources
	tls      *clientTLS // nil on cleartext
	tcp      net.Dialer
	delay    time.Duration // connectDelay
	stats    counters
}

// Result is a new connection with the durations of its dial.
type Result struct {
	// Conn is Socket, or the TLS connection on it. The caller closes it.
	Conn   net.Conn
	Socket *socket.Conn
	// Protocol is the protocol that TLS or the configuration chose.
	Protocol exchange.Protocol
	// TCP and TLS are the durations of these steps; 0 if a step was not started. They are also set if Dial fails.
	TCP, TLS time.Duration
	// Raced is also set if Dial fails.
	Raced
}

// Raced holds the results of the connection attempts of one dial.
type Raced struct {
	// At is the address of the connection, or of Dial's error: an index of Dial's addresses.
	At int
	// Lost holds the errors of the attempts at other addresses that failed or were clearly slower, by the index of
	// the address. It is nil if Dial had only one address.
	Lost []error
}

// New returns a dialer. It reads the files that opts.TLS names, and returns an error if they are not valid. It opens
// no connection.
func New(opts Options) (*Dialer, error) {
	if opts.Warn == nil {
		opts.Warn = func(error) {}
	}
	if opts.Changed == nil {
		opts.Changed = func(AddressChange) {}
	}
	if opts.FreeFile == nil {
		opts.FreeFile = func(error) bool { return false }
	}
	d := &Dialer{opts: opts, tcp: newTCPDialer(), delay: connectDelay, sources: newSources(opts.Sources)}
	if len(opts.Sources) > 0 {
		d.tcp.Control = bindWithoutPort
	}
	d.SetTimeouts(opts.ConnectTimeout, opts.TLSTimeout)
	if opts.Endpoints.Scheme == "https" {
		var err error
		d.tls, err = newClientTLS(&opts.TLS, opts.Mode, opts.Warn)
		if err != nil {
			return nil, err
		}
	}
	d.resolver = newResolver(d.sources, opts.Endpoints.All, opts.Lookup, &d.timeouts, opts.Lag, opts.Warn, opts.Changed, &d.stats)
	return d, nil
}

// Protocol returns the protocol of all connections, or Unknown if ALPN decides.
func (d *Dialer) Protocol() exchange.Protocol { return d.opts.Mode.Protocol(d.tls != nil) }

// Addresses returns the current addresses of all endpoints. Callers must not change the slice. Two
// calls return the same slice while the addresses stay the same.
//
// DNS results are fresh for 20 s. After that, the next call starts a look-up in the background, and all callers use
// the last good result. Callers wait for the look-up only if no result is from the last five minutes. The wait ends
// when the look-up has ended, 50 ms after one address family has brought addresses, when ctx ends, or after
// timeouts.connect. An address family whose look-ups fail keeps its addresses. An address is dropped after three
// look-ups in a row whose results lack it. Errors are *exchange.Error.
func (d *Dialer) Addresses(ctx context.Context) ([]exchange.Address, error) {
	return d.resolver.addresses(ctx)
}

// FailedLookups returns the names whose last look-up failed. It omits names that are no longer in use.
func (d *Dialer) FailedLookups() []FailedLookup {
	failed, _ := d.resolver.failedLookups(time.Now())
	return failed
}

// AddressChanges returns the last change of the addresses of each name, in the order of the endpoints.
func (d *Dialer) AddressChanges() []AddressChange { return d.resolver.changes() }

// SetEndpoints changes the endpoints that Addresses looks up. Their scheme must stay the same.
func (d *Dialer) SetEndpoints(e exchange.Endpoints) {
	if e.Scheme != d.opts.Endpoints.Scheme {
		panic("BUG: the scheme of a dialer never changes")
	}
	d.resolver.set(e.All)
}

// Close cancels running look-ups; later calls of Addresses fail. Connections and dials continue.
func (d *Dialer) Close() { d.resolver.close() }

// Dial connects to one of addrs, which Addresses has returned for one host. It tries them in order (Happy Eyeballs,
// RFC 8305): the next address at once after a failure, or in parallel if an attempt takes longer than connectDelay.
// timeouts.connect bounds all attempts together. The handshake runs on the connection that is open first.
//
// On TLS in mode Auto, Dial offers HTTP/2 only if offerHTTP2 is true. Other modes ignore offerHTTP2. Dial may connect
// twice, so ctx must bound its time. After ctx ends, Dial returns soon, and all its sockets are closed.
//
// With TLS 1.3 the peer checks adbuffer's client certificate after Dial's handshake has ended. If
// the peer refuses it, the first read fails.
//
// Errors are *exchange.Error with Progress NotSent.
func (d *Dialer) Dial(ctx context.Context, offerHTTP2 bool, addrs ...exchange.Address) (Result, error) {
	for _, addr := range addrs {
		if kind := exchange.Undialable(addr.AddrPort.Addr()); kind != "" {
			return Result{}, connectFailed(addr.String()+": "+kind+" address is never dialled", nil)
		}
	}
	offer := d.opts.Mode.offer(offerHTTP2)
	r, err := d.connect(ctx, addrs, offer)
	if err == nil || d.opts.Mode != Auto || !errors.Is(err, errInadequate) {
		return r, err
	}
	// The SSP chose HTTP/2, and then a cipher suite that HTTP/2 prohibits. HTTP/1 works if the
	// dialer does not offer HTTP/2.
	raced := r.Raced
	r, err = d.connect(ctx, addrs[raced.At:raced.At+1], d.opts.Mode.offer(false))
	r.Raced = raced
	return r, err
}

// connect opens one TCP connection and, on TLS, does one handshake.
func (d *Dialer) connect(ctx context.Context, addrs []exchange.Address, offer []string) (Result, error) {
	var r Result
	start := time.Now()
	sock, raced, err := d.openSocket(ctx, addrs)
	r.TCP, r.Raced = time.Since(start), raced
	if err != nil {
		return r, err
	}
	if d.tls == nil {
		r.Conn, r.Socket, r.Protocol = sock, sock, d.Protocol()
		return r, nil
	}
	addr := addrs[raced.At]
	start = time.Now()
	sock.Records()
	conn, state, err := d.handshake(ctx, sock, addr, offer)
	r.TLS = time.Since(start)
	if err == nil {
		r.Protocol, err = d.negotiated(state, addr, offer)
	}
	if err != nil {
		d.stats.handshakeFailed(err)
		_ = sock.Close()
		return r, err
	}
	r.Conn, r.Socket = conn, sock
	return r, nil
}

// timeouts can change while dials are under way; each dial reads them once.
type timeouts struct{ connectNs, handshakeNs atomic.Int64 }

func (t *timeouts) connect() time.Duration { return time.Duration(t.connectNs.Load()) }

func (t *timeouts) handshake() time.Duration { return time.Duration(t.handshakeNs.Load()) }

// SetTimeouts changes ConnectTimeout and TLSTimeout for dials and look-ups that start later. Both must be positive.
func (d *Dialer) SetTimeouts(connect, handshake time.Duration) {
	d.timeouts.connectNs.Store(int64(connect))
	d.timeouts.handshakeNs.Store(int64(handshake))
}
