package proxy_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/proxy"
	"adbuffer/internal/route"
)

// identity is a certificate for the proxy, and who trusts it.
type identity struct {
	server *tls.Config
	roots  *x509.CertPool
}

// newIdentity is made once: keys take time.
var newIdentity = sync.OnceValue(func() identity {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "adbuffer.test"}, DNSNames: []string{"adbuffer.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return identity{
		server: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}}},
		roots:  roots,
	}
})

// overTLS makes a proxy speak TLS, with its certificate given by handshake, as
// where certificates are reloaded.
func overTLS(o *proxy.Options, _ *route.Route) {
	server := newIdentity().server
	o.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return server, nil }}
}

func overTLSAnd(more func(o *proxy.Options)) func(*proxy.Options, *route.Route) {
	return func(o *proxy.Options, rt *route.Route) {
		overTLS(o, rt)
		more(o)
	}
}

func (m *modeProxy) addr() string { return strings.TrimPrefix(m.url, "http://") }

// dialTLS connects, offering protocols by ALPN.
func (m *modeProxy) dialTLS(protocols ...string) *tls.Conn {
	m.t.Helper()
	c, err := tls.Dial("tcp", m.addr(), &tls.Config{RootCAs: newIdentity().roots, ServerName: "adbuffer.test", NextProtos: protocols})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { c.Close() }) //nolint:errcheck // the test is over
	return c
}

// client is net/http's, over TLS, with HTTP/2 or without. It waits as long as
// the test does.
func (m *modeProxy) client(http2 bool) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: newIdentity().roots, ServerName: "adbuffer.test"}, Protocols: protocols,
		MaxIdleConnsPerHost: 100, DisableCompression: true,
	}
	m.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (m *modeProxy) https(path string) string { return "https://" + m.addr() + path }

// ask sends a request and reads the whole answer.
func (m *modeProxy) ask(c *http.Client, method, path, body string, fields ...string) (*http.Response, string) {
	m.t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(m.t.Context(), method, m.https(path), r)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		req.Header.Add(name, value)
	}
	res, err := c.Do(req)
	if err != nil {
		m.t.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	b, err := io.ReadAll(res.Body)
	if err != nil {
		m.t.Fatal(err)
	}
	return res, string(b)
}

// series returns the value of a counter or gauge, by its name and one label's
// value, "" for none.
func (m *modeProxy) series(name, label string) float64 {
	m.t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(m.p)
	families, err := reg.Gather()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, s := range f.GetMetric() {
			if l := s.GetLabel(); len(l) == 0 && label == "" || len(l) == 1 && l[0].GetValue() == label {
				return s.GetCounter().GetValue() + s.GetGauge().GetValue()
			}
		}
	}
	m.t.Fatalf("no series %s of %q", name, label)
	return 0
}

// await waits for a series to have a value.
func (m *modeProxy) await(want float64, name, label string) {
	m.t.Helper()
	for began := time.Now(); m.series(name, label) != want; time.Sleep(time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			m.t.Fatalf("%s %s is %v, want %v", name, label, m.series(name, label), want)
		}
	}
}

const (
	failedHandshakes = "adbuffer_client_tls_handshake_errors_total"
	handshakes       = "adbuffer_client_tls_handshakes_total"
	openClients      = "adbuffer_client_connections"
)

func TestClientsAreServedOverTLS(t *testing.T) {
	big := strings.Repeat("0123456789", 10_000)
	m := newModeProxy(t, route.Single, overTLS, bidder{name: "a", handler: func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		io.WriteString(w, big[:len(big)-len(body)]) //nolint:errcheck // the proxy tells
	}})
	c := m.client(false)
	for _, n := range []int{0, 1, 16 << 10, 16<<10 + 1, 90_000} { // bodies that end with a TLS record, and within one
		res, body := m.ask(c, "POST", "/fill", big[:n])
		m.want(res, 200, "ssp/a")
		if body != big[:len(big)-n] || res.ProtoMajor != 1 {
			t.Errorf("%d bytes of body: an answer of %d bytes over %s", n, len(body), res.Proto)
		}
	}
	if n := m.series(handshakes, "false"); n != 1 {
		t.Errorf("%v handshakes for one kept connection", n)
	}
}

func TestTLSSessionsAreResumedAlsoAfterAReload(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLS, bids("a", "{}"))
	config := &tls.Config{RootCAs: newIdentity().roots, ServerName: "adbuffer.test", ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	for range 3 {
		c, err := tls.Dial("tcp", m.addr(), config)
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, c, "GET /fill HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 200)
		c.Close() //nolint:errcheck // it was read
		o := m.options
		o.TLS = o.TLS.Clone()
		m.p.Reload(o, route.NewTable([]*route.Route{m.same()}))
	}
	m.await(1, handshakes, "false")
	m.await(2, handshakes, "true")
}

// exchange sends raw bytes and reads one answer.
func exchange(tb testing.TB, c net.Conn, raw string, status int) string {
	tb.Helper()
	if _, err := io.WriteString(c, raw); err != nil {
		tb.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		tb.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status {
		tb.Errorf("%v %d %s, want %d", err, res.StatusCode, body, status)
	}
	return string(body)
}

// Bytes that come in any pieces, each a record of its own or a part of one, make
// the same requests; pipelined ones too.
func TestRequestsOverTLSComeInAnyPieces(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.ReduceIdleMemory = true }), bids("a", "{}"))
	raw := "POST /fill HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789"
	c := m.dialTLS()
	r := bufio.NewReader(c)
	read := func() {
		t.Helper()
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, res.Body) //nolint:errcheck // the status is what matters
		if res.StatusCode != 200 {
			t.Errorf("status %d", res.StatusCode)
		}
	}
	for _, step := range []int{1, 7, len(raw)} {
		for i := 0; i < len(raw); i += step {
			io.WriteString(c, raw[i:min(i+step, len(raw))]) //nolint:errcheck // the read tells
		}
		read()
		time.Sleep(15 * time.Millisecond) // parked or not, what comes next is a request
	}
	io.WriteString(c, strings.Repeat(raw, 3)) //nolint:errcheck // the read tells
	for range 3 {
		read()
	}
}

func TestHandshakesThatFailAreCountedByReason(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.ReadTimeout = 50 * time.Millisecond }), bids("a", "{}"))
	dial := func() net.Conn {
		c, err := net.Dial("tcp", m.addr())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	slow := dial() // says nothing
	defer slow.Close()
	m.await(1, failedHandshakes, "timeout")

	trickle := dial() // begins a ClientHello
	defer trickle.Close()
	trickle.Write([]byte{22, 3, 1, 0, 200, 1}) //nolint:errcheck // the counter tells
	m.await(2, failedHandshakes, "timeout")

	gone := dial()
	gone.Close() //nolint:errcheck // that is the test
	m.await(1, failedHandshakes, "closed")

	_, err := tls.Dial("tcp", m.addr(), &tls.Config{ServerName: "adbuffer.test", RootCAs: x509.NewCertPool()})
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) {
		t.Fatalf("the client's error: %v", err)
	}
	m.await(1, failedHandshakes, "refused")

	_, err = tls.Dial("tcp", m.addr(), &tls.Config{ServerName: "adbuffer.test", RootCAs: newIdentity().roots, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10})
	if err == nil {
		t.Fatal("TLS 1.1 is spoken")
	}
	m.await(1, failedHandshakes, "invalid")

	plain := dial()
	defer plain.Close()
	if body := exchange(t, plain, "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n", 400); !strings.Contains(body, "TLS is spoken here") {
		t.Errorf("answer to plain HTTP: %s", body)
	}
	m.await(2, failedHandshakes, "invalid")
	m.await(0, openClients, "")
	if got := m.routesCounted()["none"]; got != 1 {
		t.Errorf("%v requests counted, want the one that was answered", got)
	}
}

func TestClientCertificateIsAskedForWhereItIsConfigured(t *testing.T) {
	m := newModeProxy(t, route.Single, func(o *proxy.Options, _ *route.Route) {
		o.TLS = newIdentity().server.Clone()
		o.TLS.ClientCAs, o.TLS.ClientAuth = newIdentity().roots, tls.RequireAndVerifyClientCert
	}, bids("a", "{}"))
	c := m.dialTLS()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("served without a certificate")
	}
	m.await(1, failedHandshakes, "invalid")
	with := &tls.Config{RootCAs: newIdentity().roots, ServerName: "adbuffer.test", Certificates: newIdentity().server.Certificates}
	c, err := tls.Dial("tcp", m.addr(), with)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	exchange(t, c, "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n", 200)
}

// A stalled handshake holds neither Accept nor others, but counts as a
// connection.
func TestStalledHandshakesHoldNobodyUpButCount(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.MaxConnections = 11 }), bids("a", "{}"))
	for range 10 {
		c, err := net.Dial("tcp", m.addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	m.await(10, openClients, "")
	c := m.dialTLS()
	exchange(t, c, "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n", 200)
	over, err := net.Dial("tcp", m.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer over.Close()
	if n, err := over.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("a connection over the limit was not closed")
	}
	if got := m.routesCounted()["none"]; got != 1 {
		t.Errorf("%v connections are refused", got)
	}
}

// The server's buffers are given up, the TLS session is kept.
func TestIdleTLSClientsAreParkedAndServedAgain(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.ReduceIdleMemory = true }), bids("a", "{}"))
	c := m.dialTLS("http/1.1")
	for range 3 {
		exchange(t, c, "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n", 200)
		for m.p.Serving() > 0 {
			time.Sleep(time.Millisecond)
		}
		m.await(1, openClients, "")
	}
	if n := m.series(handshakes, "false"); n != 1 {
		t.Errorf("%v handshakes", n)
	}
	c.Close() //nolint:errcheck // with close_notify
	m.await(0, openClients, "")
}

// Half a TLS record is no idle client, whatever time it takes to come.
func TestARecordThatDoesNotEndIsARequestThatDoesNotEnd(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) {
		o.ReadTimeout, o.IdleTimeout, o.ReduceIdleMemory = 50*time.Millisecond, time.Hour, true
	}), bids("a", "{}"))
	raw, err := net.Dial("tcp", m.addr())
	if err != nil {
		t.Fatal(err)
	}
	var cut cutWriter
	cut.Conn = raw
	c := tls.Client(&cut, &tls.Config{RootCAs: newIdentity().roots, ServerName: "adbuffer.test"})
	defer c.Close()
	exchange(t, c, "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n", 200)
	cut.after = 20
	io.WriteString(c, "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n") //nolint:errcheck // the read tells
	// It is told so (408) only where the server had begun to wait anew for it.
	if res, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil && res.StatusCode != 408 {
		t.Errorf("status %d, want 408", res.StatusCode)
	}
	m.await(0, openClients, "")
}

// cutWriter writes no more than the first bytes of each Write, where after is
// not 0.
type cutWriter struct {
	net.Conn
	after int
}

func (c *cutWriter) Write(b []byte) (int, error) {
	if c.after > 0 {
		c.Conn.Write(b[:min(c.after, len(b))]) //nolint:errcheck // the read tells
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func TestServerSaysCloseNotify(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.IdleTimeout = 20 * time.Millisecond }), bids("a", "{}"))
	for _, raw := range []string{"GET /fill HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n"} {
		c := m.dialTLS()
		exchange(t, c, raw, 200)
		if _, err := c.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // without close_notify it is another
			t.Errorf("the connection ended with %v, not by close_notify", err)
		}
	}
}

// One that closes as TLS asks for leaves a record behind that nobody has read.
func TestClientThatLeftOverTLSIsGone(t *testing.T) {
	var asked sync.WaitGroup
	asked.Add(1)
	second := make(chan struct{})
	m := newModeProxy(t, route.Waterfall, overTLS,
		bidder{name: "a", handler: func(w http.ResponseWriter, _ *http.Request) {
			asked.Done()
			<-second
			w.WriteHeader(204)
		}}, bids("b", "{}"))
	c := m.dialTLS()
	io.WriteString(c, "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n") //nolint:errcheck // the counter tells
	asked.Wait()
	c.Close() //nolint:errcheck // close_notify, and then FIN
	time.Sleep(20 * time.Millisecond)
	close(second)
	for m.counted("adbuffer_requests_total", "client_gone") != 1 {
		if m.counted("adbuffer_requests_total", "fill") > 0 {
			t.Fatal("the second SSP was asked for a client that had left")
		}
		time.Sleep(time.Millisecond)
	}
}

// handedOn is a connection as a PROXY-protocol listener hands it on.
type handedOn struct {
	net.Conn
	client netip.Addr
	err    error
	wait   <-chan struct{}
}

func (h handedOn) NetConn() net.Conn { return h.Conn }
func (h handedOn) ReadHeader() (netip.Addr, error) {
	<-h.wait
	return h.client, h.err
}

// handingOn is a listener whose connections begin with a header.
type handingOn struct {
	net.Listener
	next chan handedOn
}

func (l handingOn) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	h := <-l.next
	h.Conn = c
	return h, nil
}

func TestClientBehindAPROXYHeaderIsWhoItSays(t *testing.T) {
	for _, change := range []func(*proxy.Options, *route.Route){nil, overTLS} {
		m := newModeProxy(t, route.Single, change, bidder{name: "a", handler: func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, r.Header.Get("X-Forwarded-For")) //nolint:errcheck // the proxy tells
		}})
		inner, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l := handingOn{inner, make(chan handedOn, 3)}
		served := make(chan error, 1)
		go func() { served <- m.p.Serve(l) }()
		m.url = "http://" + inner.Addr().String()

		stalled, now := make(chan struct{}), make(chan struct{})
		close(now)
		l.next <- handedOn{wait: stalled}
		l.next <- handedOn{wait: now, client: netip.MustParseAddr("203.0.113.9")}
		l.next <- handedOn{wait: now, err: os.ErrInvalid}
		first, err := net.Dial("tcp", m.addr()) // whose header does not come, and holds nobody up
		if err != nil {
			t.Fatal(err)
		}
		dial := func() net.Conn {
			if change != nil {
				return m.dialTLS()
			}
			c, err := net.Dial("tcp", m.addr())
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		c := dial()
		if got := exchange(t, c, "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n", 200); got != "203.0.113.9" {
			t.Errorf("the SSP is told of %q", got)
		}
		bad, err := net.Dial("tcp", m.addr())
		if err != nil {
			t.Fatal(err)
		}
		if n, err := bad.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Error("served with a bad header")
		}
		close(stalled)
		for _, c := range []net.Conn{c, bad, first} {
			c.Close() //nolint:errcheck // the test is over
		}
		m.p.Drain(context.Background())
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

func TestReloadTurnsTLSOnForTheNextConnection(t *testing.T) {
	m := newModeProxy(t, route.Single, nil, bids("a", "{}"))
	before, err := net.Dial("tcp", m.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	exchange(t, before, "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n", 200)
	o := m.options
	overTLS(&o, nil)
	m.p.Reload(o, route.NewTable([]*route.Route{m.same()}))
	exchange(t, before, "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n", 200)
	exchange(t, m.dialTLS(), "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n", 200)
}

// What came of TLS and was not read, a Drain does not wait for.
func TestDrainEndsHandshakesAndParkedClients(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.ReduceIdleMemory, o.ReadTimeout = true, time.Hour }), bids("a", "{}"))
	stalled, err := net.Dial("tcp", m.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer stalled.Close()
	parked := m.dialTLS()
	exchange(t, parked, "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n", 200)
	m.await(2, openClients, "")
	for m.p.Serving() > 1 {
		time.Sleep(time.Millisecond)
	}
	if cut := m.p.Drain(t.Context()); cut != 0 {
		t.Errorf("%d cut", cut)
	}
	m.await(0, openClients, "")
	if _, err := parked.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // without close_notify it is another
		t.Errorf("the parked connection ended with %v", err)
	}
}
