package dial

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

func TestMain(m *testing.M) { testsupport.Main(m) }

func hasResumed(r Result) bool { return r.Conn.(*tls.Conn).ConnectionState().DidResume }

// failedHandshakes returns how many handshakes of d are counted as failed.
func failedHandshakes(d *Dialer) (n uint64) {
	for i := range d.stats.handshakes {
		n += d.stats.handshakes[i].Load()
	}
	return n
}

// authority issues certificates.
type authority struct{ tls.Certificate }

func newAuthority() *authority { return &authority{testsupport.Certificate("CA of a test")} }

// issue returns a certificate for the host (a name or an address), usable by servers and clients.
func (ca *authority) issue(t *testing.T, host string, notAfter time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testsupport.NoError(t, err)
	cert := testsupport.CertificateUntil(notAfter, key, host)
	cert.Certificate[0], err = x509.CreateCertificate(rand.Reader, cert.Leaf, ca.Leaf, key.Public(), ca.PrivateKey)
	testsupport.NoError(t, err)
	return cert
}

func (ca *authority) valid(t *testing.T, host string) tls.Certificate {
	t.Helper()
	return ca.issue(t, host, time.Now().Add(time.Hour))
}

// file writes the authority's certificate to a file.
func (ca *authority) file(t *testing.T) string {
	t.Helper()
	cert, _ := testsupport.PEM(t, ca.Certificate)
	return writeFile(t, filepath.Join(t.TempDir(), "ca.pem"), cert)
}

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	testsupport.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// peer is the other end of a dial.
type peer struct {
	port  uint16
	hello chan *tls.ClientHelloInfo // of each handshake
	state chan tls.ConnectionState  // of each successful handshake
}

func (p *peer) addr(host string) exchange.Address {
	return exchange.Address{Endpoint: exchange.Endpoint{Host: host}, AddrPort: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), p.port)}
}

// listen serves each connection in its own goroutine, and closes it when serve returns. All these
// goroutines end before the test ends.
func listen(t *testing.T, serve func(*net.TCPConn)) *peer {
	t.Helper()
	return listenAt(t, "127.0.0.1", serve)
}

func listenAt(t *testing.T, ip string, serve func(*net.TCPConn)) *peer {
	t.Helper()
	ln, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	testsupport.NoError(t, err)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []*net.TCPConn
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c.(*net.TCPConn))
			mu.Unlock()
			wg.Go(func() { defer c.Close(); serve(c.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return &peer{
		port:  ln.Addr().(*net.TCPAddr).AddrPort().Port(),
		hello: make(chan *tls.ClientHelloInfo, 16), state: make(chan tls.ConnectionState, 16),
	}
}

// listenTLS makes a handshake on each connection, sends one byte, so that the
// client sees its session tickets, and waits for the client to close.
func listenTLS(t *testing.T, cfg *tls.Config) *peer {
	t.Helper()
	var p *peer
	ready := make(chan struct{})
	cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		p.hello <- hello
		return nil, nil
	}
	p = listen(t, func(c *net.TCPConn) {
		<-ready
		conn := tls.Server(c, cfg)
		if conn.Handshake() != nil {
			return
		}
		p.state <- conn.ConnectionState()
		_, _ = conn.Write([]byte("x"))
		_, _ = io.Copy(io.Discard, conn)
	})
	close(ready)
	return p
}

// https returns options that reach p over TLS as host, which resolves to 127.0.0.1. No test reaches
// the timeouts.
func (p *peer) https(t *testing.T, ca *authority, host string) Options {
	t.Helper()
	o := p.options(t, "https", host)
	if ca != nil {
		o.TLS.CAFile = ca.file(t)
	}
	return o
}

func (p *peer) options(t *testing.T, scheme, host string) Options {
	t.Helper()
	a := p.addr(host).AddrPort
	ends, err := exchange.ParseEndpoints([]string{scheme + "://" + netip.AddrPortFrom(a.Addr(), a.Port()).String() + "/bid"})
	testsupport.NoError(t, err)
	ends.All[0] = exchange.Endpoint{Host: host, Port: a.Port()}
	return Options{
		Endpoints: ends, Mode: Auto, ConnectTimeout: time.Minute, TLSTimeout: time.Minute,
		Lookup: func(context.Context, string, string) ([]netip.Addr, error) { return []netip.Addr{a.Addr()}, nil },
	}
}

func newDialer(t *testing.T, o Options) *Dialer {
	t.Helper()
	d, err := New(o)
	testsupport.NoError(t, err)
	t.Cleanup(d.Close)
	return d
}

// dial returns the connection. The end of the test closes it.
func (p *peer) dial(t *testing.T, d *Dialer, offerHTTP2 bool) Result {
	t.Helper()
	addrs, err := d.Addresses(t.Context())
	testsupport.NoError(t, err)
	r, err := d.Dial(t.Context(), offerHTTP2, addrs[0])
	testsupport.NoError(t, err)
	t.Cleanup(func() { r.Conn.Close() })
	return r
}

// readOne reads the byte that listenTLS sends.
func readOne(t *testing.T, r Result) {
	t.Helper()
	testsupport.NoError(t, r.Conn.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err := io.ReadFull(r.Conn, make([]byte, 1))
	testsupport.NoError(t, err)
}

// dialError returns the error of a dial that must fail, after it checks the properties that all
// such errors share.
func dialError(t *testing.T, d *Dialer, a exchange.Address, want exchange.Outcome, detail ...string) *exchange.Error {
	t.Helper()
	r, err := d.Dial(t.Context(), true, a)
	if err == nil {
		r.Conn.Close()
		t.Fatal("the dial succeeded")
	}
	testsupport.True(t, r.Conn == nil && r.Socket == nil, "a failed dial returned a connection")
	return checkError(t, err, want, detail...)
}

func checkError(t *testing.T, err error, want exchange.Outcome, detail ...string) *exchange.Error {
	t.Helper()
	var e *exchange.Error
	testsupport.MustTrue(t, errors.As(err, &e), "%v is no *exchange.Error", err)
	testsupport.True(t, e.Outcome == want && e.Progress == exchange.NotSent, "%v: outcome %v, progress %v; want %v, NotSent", err, e.Outcome, e.Progress, want)
	for _, d := range detail {
		testsupport.True(t, strings.Contains(e.Detail, d), "detail %q does not contain %q", e.Detail, d)
	}
	return e
}

func sorted(addrs []exchange.Address) []string {
	var all []string
	for _, a := range addrs {
		all = append(all, a.String())
	}
	slices.Sort(all)
	return all
}
