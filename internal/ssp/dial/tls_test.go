package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/handshake"
)

func hasAll(s string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

// waitForEnd returns when the other side has closed c.
func waitForEnd(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) }

func reset(c *net.TCPConn) { c.SetLinger(0) } // closing sends a reset

func TestALaterHandshakeResumesTheSession(t *testing.T) {
	ca := newAuthority()
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		p := listenTLS(t, &tls.Config{
			Certificates: []tls.Certificate{ca.valid(t, "ssp.test")}, NextProtos: []string{"h2"}, MaxVersion: version,
		})
		d := newDialer(t, p.https(t, ca, "ssp.test"))
		for i := range 3 {
			r := p.dial(t, d, true)
			readOne(t, r) // the tickets of TLS 1.3 arrive before this byte
			r.Conn.Close()
			server := <-p.state
			if want := i > 0; hasResumed(r) != want || server.DidResume != want || server.Version != version {
				t.Errorf("%s, handshake %d: resumed %v here, %v there, over %s",
					tls.VersionName(version), i, hasResumed(r), server.DidResume, tls.VersionName(server.Version))
			}
		}
	}
}

func TestSessionsBelongToOneAddress(t *testing.T) {
	ca := newAuthority()
	cert := []tls.Certificate{ca.valid(t, "ssp.test")}
	one, two := listenTLS(t, &tls.Config{Certificates: cert}), listenTLS(t, &tls.Config{Certificates: cert})
	d := newDialer(t, one.https(t, ca, "ssp.test"))
	for i := range 2 {
		for _, p := range []*peer{one, two} { // each peer knows only its own tickets
			r, err := d.Dial(t.Context(), true, p.addr("ssp.test"))
			testsupport.NoError(t, err)
			readOne(t, r)
			r.Conn.Close()
			testsupport.Equal(t, hasResumed(r), i > 0, "round %[2]d, port %[3]d: resumed is %[1]v", i, p.port)
		}
	}
}

func TestTheServerNameIsTheHostOrTheSetting(t *testing.T) {
	ca := newAuthority()
	for _, tt := range []struct{ host, setting, cert, sni string }{
		{"ssp.test", "", "ssp.test", "ssp.test"},
		{"ssp.test.", "", "ssp.test", "ssp.test"},
		{"ssp.test", "other.test", "other.test", "other.test"},
		{"127.0.0.1", "", "127.0.0.1", ""}, // the address is verified, and never sent. RFC 6066, section 3
		{"127.0.0.1", "ssp.test", "ssp.test", "ssp.test"},
	} {
		p := listenTLS(t, &tls.Config{Certificates: []tls.Certificate{ca.valid(t, tt.cert)}})
		o := p.https(t, ca, tt.host)
		o.TLS.ServerName = tt.setting
		r := p.dial(t, newDialer(t, o), true)
		readOne(t, r)
		testsupport.Equal(t, (<-p.hello).ServerName, tt.sni, "%[2]+v: server name %[1]q", tt)
	}
}

func TestCertificatesThatProveNothingAreRefused(t *testing.T) {
	ca := newAuthority()
	for _, tt := range []struct {
		name   string
		cert   tls.Certificate
		change func(*Options)
		detail string
	}{
		{"of another authority", newAuthority().valid(t, "ssp.test"), nil, "tls.ca_file"},
		{"of no system authority", ca.valid(t, "ssp.test"), func(o *Options) { o.TLS.CAFile = "" }, "tls.ca_file"},
		{"expired", ca.issue(t, "ssp.test", time.Now().Add(-time.Minute)), nil, "expired"},
		{"expired, and for another name", ca.issue(t, "other.test", time.Now().Add(-time.Minute)), nil, "expired, or is not valid yet, and is for another name; see tls.server_name"},
		{"in a chain that is too long", longChain(ca.valid(t, "ssp.test")), nil, "sent 11 certificates"},
		{"for another name", ca.valid(t, "other.test"), nil, "tls.server_name"},
		{"for a name that the setting changes", ca.valid(t, "ssp.test"), func(o *Options) { o.TLS.ServerName = "other.test" }, "tls.server_name"},
	} {
		p := listenTLS(t, &tls.Config{Certificates: []tls.Certificate{tt.cert}})
		o := p.https(t, ca, "ssp.test")
		if tt.change != nil {
			tt.change(&o)
		}
		d := newDialer(t, o)
		e := dialError(t, d, p.addr("ssp.test"), exchange.TLSFailed, p.addr("ssp.test").String(), tt.detail)
		testsupport.True(t, kind(e) == "tls" && failedHandshakes(d) == 1, "%s: %v is counted as %s, %+v", tt.name, e, kind(e), &d.stats)
		o.TLS.InsecureSkipVerify = true
		if len(tt.cert.Certificate) > 10 {
			dialError(t, newDialer(t, o), p.addr("ssp.test"), exchange.TLSFailed, tt.detail)
			continue
		}
		r := p.dial(t, newDialer(t, o), true)
		readOne(t, r)
	}
}

// longChain returns c with a chain of eleven certificates.
func longChain(c tls.Certificate) tls.Certificate {
	c.Certificate = slices.Repeat(c.Certificate[:1], 11)
	return c
}

// deadlineNow is a context whose deadline passes when it is cancelled.
type deadlineNow struct{ context.Context }

func (d deadlineNow) Err() error {
	if d.Context.Err() == nil {
		return nil
	}
	return context.DeadlineExceeded
}

// A handshake that fails is counted by its kind, names the address, and closes the connection.
func TestHandshakesThatFail(t *testing.T) {
	ca := newAuthority()
	serve := func(cfg *tls.Config) func(*net.TCPConn) {
		cfg.Certificates = []tls.Certificate{ca.valid(t, "ssp.test")}
		return func(c *net.TCPConn) { _ = tls.Server(c, cfg).Handshake() }
	}
	readOneByte := func(c *net.TCPConn) { _, _ = c.Read(make([]byte, 1)) } // the handshake has begun
	silent := func(*net.TCPConn) {}
	for _, tt := range []struct {
		name   string
		peer   func(*net.TCPConn)
		change func(*Options)
		// end returns the context of the dial, which its function ends after peer; nil = it does not end.
		end    func(context.Context) (context.Context, context.CancelFunc)
		kind   string
		detail string
		cause  error // that the error wraps, if not nil
	}{
		{name: "TLS 1.1", peer: serve(&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}), kind: "tls"},
		{name: "an untrusted authority", peer: serve(new(tls.Config)), change: func(o *Options) { o.TLS.CAFile = "" }, kind: "tls", detail: "tls.ca_file"},
		{name: "no ALPN", peer: serve(new(tls.Config)), change: func(o *Options) { o.Mode = HTTP2 }, kind: "alpn", detail: "see protocol"},
		{name: "no TLS", peer: func(c *net.TCPConn) {
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"))
		}, kind: "tls"},
		{name: "a reset", peer: func(c *net.TCPConn) { readOneByte(c); reset(c); c.Close() }, kind: "reset", detail: "leave the groups with MLKEM out of tls.groups"},
		{
			name: "silence", peer: silent, change: func(o *Options) { o.TLSTimeout = 30 * time.Millisecond }, // the connect timeout is a minute
			kind: "timeout", detail: "no TLS handshake within 30ms; see timeouts.tls_handshake; it sent nothing: if a firewall drops a ClientHello over 1,400 bytes, leave the groups with MLKEM out of tls.groups",
		},
		{name: "cancelled", peer: readOneByte, end: context.WithCancel, kind: "tls", detail: "cancelled", cause: context.Canceled},
		{name: "the dial's deadline", peer: readOneByte, end: func(parent context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(parent)
			return deadlineNow{ctx}, cancel
		}, kind: "timeout", detail: "timeouts.connect and timeouts.tls_handshake"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, end := t.Context(), func() {}
			if tt.end != nil {
				ctx, end = tt.end(ctx)
			}
			closed := make(chan struct{}, 1)
			p := listen(t, func(c *net.TCPConn) {
				tt.peer(c)
				end()
				waitForEnd(c)
				closed <- struct{}{}
			})
			o := p.https(t, ca, "ssp.test")
			if tt.change != nil {
				tt.change(&o)
			}
			d := newDialer(t, o)
			r, err := d.Dial(ctx, true, p.addr("ssp.test"))
			e := checkError(t, err, exchange.TLSFailed, p.addr("ssp.test").String(), tt.detail)
			testsupport.True(t, tt.cause == nil || errors.Is(err, tt.cause), "%v does not wrap %v", err, tt.cause)
			testsupport.True(t, kind(e) == tt.kind && !strings.Contains(e.Error(), "Bad Request"), "%v is counted as %s, want %s", e, kind(e), tt.kind)
			testsupport.True(t, r.Conn == nil && r.Socket == nil && r.TCP > 0 && r.TLS > 0, "a dial that failed during TLS returned %+v", r)
			n := failedHandshakes(d)
			testsupport.Equal(t, n, 1, "%d failed handshakes are counted")
			<-closed
		})
	}
}

// The error of a ClientHello without a reply names tls.groups only if the hello may have been too long for a
// firewall.
func TestAHelloOfOnePacketIsNotCalledTooLong(t *testing.T) {
	for name, row := range map[string]struct {
		groups []string
		reply  []byte
		named  bool
	}{
		"all groups":                         {nil, nil, true},
		"one with ML-KEM":                    {[]string{"x25519", "X25519MLKEM768"}, nil, true},
		"none with ML-KEM":                   {[]string{"x25519", "secp256r1"}, nil, false},
		"all groups, and a byte of a record": {nil, []byte{22}, false},
	} {
		p := listen(t, func(c *net.TCPConn) {
			_, _ = c.Read(make([]byte, 1))
			_, _ = c.Write(row.reply)
			if row.reply != nil {
				waitForEnd(c)
			}
			reset(c)
		})
		o := p.https(t, nil, "ssp.test")
		o.TLS.Policy = handshake.NewPolicy("1.2", row.groups)
		if row.reply != nil {
			o.TLSTimeout = time.Second
		}
		err := dialError(t, newDialer(t, o), p.addr("ssp.test"), exchange.TLSFailed)
		testsupport.Equal(t, strings.Contains(err.Error(), "tls.groups"), row.named, "%[2]s: the error names tls.groups: %[1]v; %[3]v", name, err)
	}
}

func TestFilesThatAreBrokenAreNamedWithTheirSetting(t *testing.T) {
	ca, dir := newAuthority(), t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	testsupport.WriteCertificate(t, ca.valid(t, "a"), file("a.pem"), file("a.key"))
	testsupport.WriteCertificate(t, ca.valid(t, "b"), file("b.pem"), file("b.key"))
	writeFile(t, file("text"), "no PEM")
	whole, _ := testsupport.PEM(t, ca.Certificate)
	half, _ := testsupport.PEM(t, tls.Certificate{Certificate: [][]byte{ca.Leaf.Raw[:99]}, PrivateKey: ca.PrivateKey})
	writeFile(t, file("half.pem"), whole+half)
	for _, tt := range []struct {
		tls  TLS
		want []string
	}{
		{TLS{CAFile: file("none")}, []string{"tls.ca_file: ", file("none")}},
		{TLS{CAFile: file("text")}, []string{"tls.ca_file: ", file("text"), "a certificate in PEM"}},
		{TLS{CAFile: file("half.pem")}, []string{"tls.ca_file: ", file("half.pem"), "number 2"}},
		{TLS{CAFile: file("a.key")}, []string{"tls.ca_file: ", file("a.key"), "PRIVATE KEY"}},
		{TLS{CertFile: file("none"), KeyFile: file("a.key")}, []string{"tls.cert_file: ", file("none")}},
		{TLS{CertFile: file("a.pem"), KeyFile: file("none")}, []string{"tls.key_file: ", file("none")}},
		{TLS{CertFile: file("a.pem"), KeyFile: file("b.key")}, []string{"tls.cert_file", file("a.pem"), "key_file", file("b.key")}},
		{TLS{CertFile: file("text"), KeyFile: file("a.key")}, []string{"tls.cert_file", file("text")}},
	} {
		o := (&peer{port: 1}).options(t, "https", "ssp.test")
		o.TLS = tt.tls
		d, err := New(o)
		if err == nil {
			d.Close()
			t.Errorf("%+v is accepted", tt.tls)
			continue
		}
		testsupport.True(t, hasAll(err.Error(), tt.want...), "error %q, want %q in it", err, tt.want)
	}
}
