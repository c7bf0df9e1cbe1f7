package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

func TestEachModeOffersAndSpeaksItsProtocols(t *testing.T) {
	ca := newAuthority()
	both, h1, h2 := []string{"h2", "http/1.1"}, []string{"http/1.1"}, []string{"h2"}
	for _, tt := range []struct {
		mode       Mode
		offerHTTP2 bool
		accepts    []string // the peer's protocols; nil = it ignores ALPN
		offered    []string
		want       exchange.Protocol // Unknown = the dial fails
	}{
		{Auto, true, both, both, exchange.HTTP2},
		{Auto, true, h1, both, exchange.HTTP1},
		{Auto, true, h2, both, exchange.HTTP2},
		{Auto, true, nil, both, exchange.HTTP1},
		{Auto, true, []string{"acme"}, both, exchange.Unknown},
		{Auto, false, both, h1, exchange.HTTP1},
		{Auto, false, []string{"acme"}, h1, exchange.Unknown},
		{HTTP1, true, both, h1, exchange.HTTP1},
		{HTTP1, true, nil, h1, exchange.HTTP1},
		{HTTP1, true, []string{"acme"}, h1, exchange.Unknown},
		{HTTP1Pipelined, true, both, h1, exchange.HTTP1Pipelined},
		{HTTP1Pipelined, true, nil, h1, exchange.HTTP1Pipelined},
		{HTTP2, true, both, h2, exchange.HTTP2},
		{HTTP2, false, both, h2, exchange.HTTP2},
		{HTTP2, true, h1, h2, exchange.Unknown},
		{HTTP2, true, nil, h2, exchange.Unknown},
	} {
		p := listenTLS(t, &tls.Config{Certificates: []tls.Certificate{ca.valid(t, "ssp.test")}, NextProtos: tt.accepts})
		o := p.https(t, ca, "ssp.test")
		o.Mode = tt.mode
		d := newDialer(t, o)
		r, err := d.Dial(t.Context(), tt.offerHTTP2, p.addr("ssp.test"))
		got := (<-p.hello).SupportedProtos
		testsupport.True(t, slices.Equal(got, tt.offered), "%s, offerHTTP2 %v: offered %q, want %q", tt.mode, tt.offerHTTP2, got, tt.offered)
		if tt.want != exchange.Unknown {
			testsupport.NoError(t, err)
			defer r.Conn.Close()
			_, ok := r.Conn.(*tls.Conn)
			testsupport.True(t, ok && r.Protocol == tt.want && r.TLS > 0 && r.TCP > 0, "%s, offerHTTP2 %v, peer %q: %+v, want %v", tt.mode, tt.offerHTTP2, tt.accepts, r, tt.want)
			continue
		}
		e := checkError(t, err, exchange.TLSFailed, "ssp.test", "adbuffer offered "+strings.Join(tt.offered, " and "), "see protocol")
		testsupport.True(t, kind(e) == "alpn" && failedHandshakes(d) == 1, "%v is counted as %s, %+v", e, kind(e), &d.stats)
	}
}

func TestOnlyAutoOverTLSLeavesTheProtocolOpen(t *testing.T) {
	for mode, want := range map[Mode]exchange.Protocol{
		Auto: exchange.Unknown, HTTP1: exchange.HTTP1, HTTP1Pipelined: exchange.HTTP1Pipelined, HTTP2: exchange.HTTP2,
	} {
		o := (&peer{port: 1}).options(t, "https", "ssp.test")
		o.Mode = mode
		testsupport.Equal(t, newDialer(t, o).Protocol(), want, "%[2]s: %[1]v", mode)
	}
}

func TestEachAddressSpeaksWhatItNegotiated(t *testing.T) {
	ca := newAuthority()
	cert := []tls.Certificate{ca.valid(t, "ssp.test")}
	modern := listenTLS(t, &tls.Config{Certificates: cert, NextProtos: []string{"h2", "http/1.1"}})
	old := listenTLS(t, &tls.Config{Certificates: cert, NextProtos: []string{"http/1.1"}})
	o := modern.https(t, ca, "ssp.test")
	o.Endpoints.All = append(o.Endpoints.All, exchange.Endpoint{Host: "ssp.test", Port: old.port})
	d := newDialer(t, o)
	addrs, err := d.Addresses(t.Context())
	testsupport.NoError(t, err)
	testsupport.MustTrue(t, len(addrs) == 2, "addresses %v", addrs)
	for range 2 {
		for _, a := range addrs {
			r, err := d.Dial(t.Context(), true, a)
			testsupport.NoError(t, err)
			want := exchange.HTTP2
			if a.AddrPort.Port() == old.port {
				want = exchange.HTTP1
			}
			testsupport.Equal(t, r.Protocol, want, "%[2]v: %[1]v", a)
			readOne(t, r)
			r.Conn.Close()
		}
	}
}

// A peer that chooses HTTP/2 together with a cipher suite that HTTP/2 prohibits violates the
// protocol. HTTP/1.1 over the same suite is allowed.
func TestHTTP2OverAProhibitedCipherSuiteBecomesHTTP1(t *testing.T) {
	ca := newAuthority()
	p := listenTLS(t, &tls.Config{
		Certificates: []tls.Certificate{ca.valid(t, "ssp.test")},
		NextProtos:   []string{"h2", "http/1.1"}, MaxVersion: tls.VersionTLS12,
		CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA},
	})
	d := newDialer(t, p.https(t, ca, "ssp.test"))
	r := p.dial(t, d, true)
	readOne(t, r)
	state := r.Conn.(*tls.Conn).ConnectionState()
	testsupport.True(t, r.Protocol == exchange.HTTP1 && state.NegotiatedProtocol == "http/1.1", "protocol %v, negotiated %q", r.Protocol, state.NegotiatedProtocol)
	testsupport.Equal(t, failedHandshakes(d), 1, "%d handshakes are counted as failed")

	o := p.https(t, ca, "ssp.test")
	o.Mode = HTTP2
	e := dialError(t, newDialer(t, o), p.addr("ssp.test"), exchange.TLSFailed)
	testsupport.Equal(t, kind(e), "tls", "%[2]v is counted as %[1]s", e)
}

func TestHTTP2NeedsWhatRFC9113Asks(t *testing.T) {
	d := newDialer(t, (&peer{port: 1}).options(t, "https", "ssp.test"))
	for _, tt := range []struct {
		version, suite uint16
		ok             bool
	}{
		{tls.VersionTLS13, tls.TLS_AES_128_GCM_SHA256, true},
		{tls.VersionTLS12, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, true},
		{tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, true},
		{tls.VersionTLS12, tls.TLS_RSA_WITH_AES_128_GCM_SHA256, false},
		{tls.VersionTLS12, tls.TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA, false},
		{tls.VersionTLS11, tls.TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA, false},
	} {
		p, err := d.negotiated(tls.ConnectionState{Version: tt.version, CipherSuite: tt.suite, NegotiatedProtocol: "h2"},
			exchange.Address{Endpoint: exchange.Endpoint{Host: "ssp.test"}, AddrPort: netip.MustParseAddrPort("192.0.2.1:443")}, Auto.offer(true))
		switch {
		case tt.ok && (err != nil || p != exchange.HTTP2):
			t.Errorf("%x %x: %v, %v", tt.version, tt.suite, p, err)
		case !tt.ok:
			e := checkError(t, err, exchange.TLSFailed, tls.CipherSuiteName(tt.suite))
			testsupport.True(t, errors.Is(e, errInadequate) && kind(e) == "alpn", "%x %x: %v, counted as %s", tt.version, tt.suite, e, kind(e))
		}
	}
}

func TestTheSecondTryWithoutHTTP2EndsWithTheContext(t *testing.T) {
	ca := newAuthority()
	cfg := &tls.Config{
		Certificates: []tls.Certificate{ca.valid(t, "ssp.test")}, NextProtos: []string{"h2"}, MaxVersion: tls.VersionTLS12,
		CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA},
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := make(chan struct{}, 1)
	first <- struct{}{}
	p := listen(t, func(c *net.TCPConn) {
		select {
		case <-first:
			conn := tls.Server(c, cfg)
			_ = conn.Handshake()
			_, _ = conn.Read(make([]byte, 1))
		default: // the peer is a black hole
			_, _ = c.Read(make([]byte, 1)) // the handshake has begun
			cancel()
			waitForEnd(c)
		}
	})
	d := newDialer(t, p.https(t, ca, "ssp.test"))
	_, err := d.Dial(ctx, true, p.addr("ssp.test"))
	if checkError(t, err, exchange.TLSFailed, "cancelled"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
