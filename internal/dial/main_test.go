package dial

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

func TestMain(m *testing.M) { testsupport.Main(m) }

func hasResumed(r Result) bool { return r.Conn.(*tls.Conn).ConnectionState().DidResume }

// handshakes counts d's handshakes.
type handshakes struct{ full, resumed, failed uint64 }

func handshakesOf(d *Dialer) (n handshakes) {
	n.full, n.resumed, n.failed = d.stats.handshakes.Totals()
	return n
}

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	ca := &authority{key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA of a test"},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &ca.key.PublicKey, ca.key)
	must(t, err)
	ca.cert, err = x509.ParseCertificate(der)
	must(t, err)
	return ca
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return key
}

// issue returns a certificate for the host (a name or an address), usable by servers and clients.
func (ca *authority) issue(t *testing.T, host string, notAfter time.Time) tls.Certificate {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: host},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: notAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, &key.PublicKey, ca.key)
	must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (ca *authority) valid(t *testing.T, host string) tls.Certificate {
	t.Helper()
	return ca.issue(t, host, time.Now().Add(time.Hour))
}

func (ca *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// file writes the authority's certificate to a file.
func (ca *authority) file(t *testing.T) string {
	t.Helper()
	return writeFile(t, filepath.Join(t.TempDir(), "ca.pem"), encode("CERTIFICATE", ca.cert.Raw))
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// writePair writes a certificate and its key.
func writePair(t *testing.T, cert tls.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	must(t, err)
	writeFile(t, certFile, encode("CERTIFICATE", cert.Certificate[0]))
	writeFile(t, keyFile, encode("PRIVATE KEY", key))
}

func writeFile(t *testing.T, path string, data []byte) string {
	t.Helper()
	must(t, os.WriteFile(path, data, 0o600))
	return path
}

// peer is the other end of a dial.
type peer struct {
	port  uint16
	hello chan *tls.ClientHelloInfo // of each handshake
	state chan tls.ConnectionState  // of each successful handshake
}

func (p *peer) addr(host string) upstream.Address {
	return upstream.Address{Endpoint: upstream.Endpoint{Host: host}, AddrPort: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), p.port)}
}

// listen serves each connection in its own goroutine, and closes it when serve returns. All these
// goroutines end before the test ends.
func listen(t *testing.T, serve func(*net.TCPConn)) *peer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
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
	ends, err := upstream.ParseEndpoints([]string{scheme + "://" + netip.AddrPortFrom(a.Addr(), a.Port()).String() + "/bid"})
	must(t, err)
	ends.All[0] = upstream.Endpoint{Host: host, Port: a.Port()}
	return Options{
		Endpoints: ends, Mode: Auto, ConnectTimeout: time.Minute, TLSTimeout: time.Minute,
		Lookup: func(context.Context, string) ([]netip.Addr, error) { return []netip.Addr{a.Addr()}, nil },
	}
}

func newDialer(t *testing.T, o Options) *Dialer {
	t.Helper()
	d, err := New(o)
	must(t, err)
	t.Cleanup(d.Close)
	return d
}

// dial returns the connection. The end of the test closes it.
func (p *peer) dial(t *testing.T, d *Dialer, offerHTTP2 bool) Result {
	t.Helper()
	addrs, err := d.Addresses(t.Context())
	must(t, err)
	r, err := d.Dial(t.Context(), offerHTTP2, addrs[0])
	must(t, err)
	t.Cleanup(func() { r.Conn.Close() })
	return r
}

// readOne reads the byte that listenTLS sends.
func readOne(t *testing.T, r Result) {
	t.Helper()
	must(t, r.Conn.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err := io.ReadFull(r.Conn, make([]byte, 1))
	must(t, err)
}

// dialError returns the error of a dial that must fail, after it checks the properties that all
// such errors share.
func dialError(t *testing.T, d *Dialer, a upstream.Address, want upstream.Outcome, detail ...string) *upstream.Error {
	t.Helper()
	r, err := d.Dial(t.Context(), true, a)
	if err == nil {
		r.Conn.Close()
		t.Fatal("the dial succeeded")
	}
	testsupport.True(t, r.Conn == nil && r.Socket == nil, "a failed dial returned a connection")
	return checkError(t, err, want, detail...)
}

func checkError(t *testing.T, err error, want upstream.Outcome, detail ...string) *upstream.Error {
	t.Helper()
	var e *upstream.Error
	testsupport.MustTrue(t, errors.As(err, &e), "%v is no *upstream.Error", err)
	testsupport.True(t, e.Outcome == want && e.Progress == upstream.NotSent, "%v: outcome %v, progress %v; want %v, NotSent", err, e.Outcome, e.Progress, want)
	for _, d := range detail {
		testsupport.True(t, strings.Contains(e.Detail, d), "detail %q does not contain %q", e.Detail, d)
	}
	return e
}

func must(t *testing.T, err error) {
	t.Helper()
	testsupport.NoError(t, err)
}

func sorted(addrs []upstream.Address) []string {
	var all []string
	for _, a := range addrs {
		all = append(all, a.String())
	}
	slices.Sort(all)
	return all
}
