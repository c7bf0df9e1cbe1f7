package proxy_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

const (
	clientErrors = "adbuffer_client_protocol_errors_total"
	handshakes   = "adbuffer_client_tls_handshakes_by_version_total"
	openClients  = "adbuffer_client_connections"
)

func TestClientsAreServedOverTLS(t *testing.T) {
	big := strings.Repeat("0123456789", 10_000)
	m := newModeProxy(t, route.Single, overTLS, bidder{name: "a", handler: func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		io.WriteString(w, big[:len(big)-len(body)])
	}})
	c := m.client(false)
	for _, n := range []int{0, 1, 16 << 10, 16<<10 + 1, 90_000} { // bodies that end with a TLS record, and within one
		res, body := m.ask(c, "POST", "/fill", big[:n])
		m.want(res, 200, "ssp/a")
		testsupport.True(t, body == big[:len(big)-n] && res.ProtoMajor == 1, "%d bytes of body: a response of %d bytes over %s", n, len(body), res.Proto)
	}
	testsupport.Equal(t, m.series(handshakes, "1.3"), 1, "%v handshakes for one kept connection")
}

func TestTLSSessionsAreResumedAlsoAfterAReload(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLS, bids("a", "{}"))
	config := clientTLS()
	config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for i := range 3 {
		c, err := tls.Dial("tcp", m.addr(), config)
		testsupport.NoError(t, err)
		resumed := c.ConnectionState().DidResume
		testsupport.True(t, resumed == (i > 0), "handshake %d: resumed is %v", i, resumed)
		sendAndRead(t, c, "GET /fill HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 200)
		c.Close()
		m.p.Reload(m.options, route.NewTable([]*route.Route{m.same()}))
	}
}

// sendAndRead sends raw bytes and reads one response.
func sendAndRead(tb testing.TB, c net.Conn, raw string, status int) string {
	tb.Helper()
	send(tb, c, raw)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	testsupport.NoError(tb, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	testsupport.True(tb, err == nil && res.StatusCode == status, "%v %d %s, want %d", err, res.StatusCode, body, status)
	return string(body)
}

// Bytes make the same requests in any pieces, each a record of its own or a part of one. Pipelined
// requests do too.
func TestRequestsOverTLSComeInAnyPieces(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLS, bids("a", "{}"))
	raw := "POST /fill HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789"
	c := m.dialTLS()
	r := bufio.NewReader(c)
	read := func() {
		t.Helper()
		res, err := http.ReadResponse(r, nil)
		testsupport.NoError(t, err)
		io.Copy(io.Discard, res.Body)
		testsupport.Equal(t, res.StatusCode, 200, "status %d")
	}
	for _, step := range []int{1, 7, len(raw)} {
		for i := 0; i < len(raw); i += step {
			io.WriteString(c, raw[i:min(i+step, len(raw))])
		}
		read()
		time.Sleep(15 * time.Millisecond) // parked or not, the next bytes are a request
	}
	io.WriteString(c, strings.Repeat(raw, 3))
	for range 3 {
		read()
	}
}

func TestHandshakesThatFailAreCountedByReason(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.ReadTimeout = 20 * time.Millisecond }), bids("a", "{}"))
	m.dial() // sends no byte
	m.awaitError(1, "tls", "timeout")

	trickle := m.dial() // begins a ClientHello
	trickle.Write([]byte{22, 3, 1, 0, 200, 1})
	m.awaitError(2, "tls", "timeout")

	m.reload(func(o *proxy.Options) { o.ReadTimeout = time.Minute })
	m.dial().Close()
	m.awaitError(1, "tls", "closed")

	_, err := tls.Dial("tcp", m.addr(), &tls.Config{ServerName: "adbuffer.test", RootCAs: x509.NewCertPool()})
	var unknown x509.UnknownAuthorityError
	testsupport.MustTrue(t, errors.As(err, &unknown), "the client's error: %v", err)
	m.awaitError(1, "tls", "refused")

	_, err = tls.Dial("tcp", m.addr(), &tls.Config{ServerName: "adbuffer.test", RootCAs: newIdentity().roots, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10})
	testsupport.MustTrue(t, err != nil, "a TLS 1.1 handshake succeeded")
	m.awaitError(1, "tls", "version")

	body := sendAndRead(t, m.dial(), "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n", 400)
	testsupport.True(t, strings.Contains(body, "this listener expects TLS"), "response to plain HTTP: %s", body)
	m.awaitError(1, "tls", "invalid")
	m.await(0, openClients, "")
	testsupport.Equal(t, m.routesCounted()["none"], 1, "%v requests counted, want the one that got a response")
}

func TestClientsWithoutACertificateAreRefusedIfClientCAsAreConfigured(t *testing.T) {
	m := newModeProxy(t, route.Single, func(o *proxy.Options, _ *route.Route) {
		o.TLS = newIdentity().server.Clone()
		o.TLS.ClientCAs, o.TLS.ClientAuth = newIdentity().roots, tls.RequireAndVerifyClientCert
	}, bids("a", "{}"))
	c := m.dialTLS()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("served without a certificate")
	}
	m.awaitError(1, "tls", "certificate")
	with := clientTLS()
	with.Certificates = newIdentity().server.Certificates
	c, err := tls.Dial("tcp", m.addr(), with)
	testsupport.NoError(t, err)
	defer c.Close()
	sendAndRead(t, c, "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n", 200)
}

// Over TLS, a connection beyond the limit is closed without a response. A request that is being read
// makes no room for it.
func TestConnectionsOverTheLimitAreClosedOverTLS(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.MaxConnections = 1 }), bids("a", "{}"))
	c := m.dialTLS()
	send(m.t, c, "POST /fill HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n")
	m.awaitUploads(1)
	n, err := m.dial().Read(make([]byte, 1))
	testsupport.True(t, n == 0 && err != nil, "a connection over the limit was not closed")
	testsupport.Equal(t, m.routesCounted()["none"], 1, "%v connections are refused")
	sendAndRead(t, c, "a", 200)
}

// A client that has sent half a TLS record is not idle, however long the rest takes.
func TestARecordThatDoesNotEndIsARequestThatDoesNotEnd(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) {
		o.IdleTimeout = time.Hour
	}), bids("a", "{}"))
	raw := m.dial()
	var cut cutWriter
	cut.Conn = raw
	c := tls.Client(&cut, clientTLS())
	defer c.Close()
	sendAndRead(t, c, "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n", 200)
	m.reload(func(o *proxy.Options) { o.ReadTimeout = 20 * time.Millisecond })
	cut.after = 20
	io.WriteString(c, "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n")
	// It gets a 408 only if the server already waited for it again.
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	testsupport.True(t, err != nil || res.StatusCode == 408, "status %d, want 408", res.StatusCode)
	m.await(0, openClients, "")
}

// cutWriter writes only the first bytes of each Write, if after is not 0.
type cutWriter struct {
	net.Conn
	after int
}

func (c *cutWriter) Write(b []byte) (int, error) {
	if c.after > 0 {
		c.Conn.Write(b[:min(c.after, len(b))])
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// idlesSoon returns a proxy over TLS that closes each connection soon after its first response,
// however late the request came: the SSP shortens idle_timeout.
func idlesSoon(t *testing.T) (m *modeProxy) {
	t.Helper()
	m = newModeProxy(t, route.Single, overTLS, bidder{name: "a", handler: func(w http.ResponseWriter, _ *http.Request) {
		m.reload(func(o *proxy.Options) { o.IdleTimeout = 20 * time.Millisecond })
		w.WriteHeader(http.StatusNoContent)
	}})
	return m
}

func TestServerSaysCloseNotify(t *testing.T) {
	m := idlesSoon(t)
	for _, raw := range []string{"GET /fill HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", getFill} {
		c := m.dialTLS()
		sendAndRead(t, c, raw, 204)
		if _, err := c.Read(make([]byte, 1)); err != io.EOF { // without close_notify the error is another one
			t.Errorf("the connection ended with %v, not by close_notify", err)
		}
		m.p.Reload(m.options, route.NewTable([]*route.Route{m.same()}))
	}
}

// A Drain does not wait for TLS bytes that arrived and were not read.
func TestDrainEndsHandshakesAndParkedClients(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.ReadTimeout = time.Hour }), bids("a", "{}"))
	m.dial() // its handshake does not begin
	parked := m.dialTLS()
	sendAndRead(t, parked, "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n", 200)
	m.await(2, openClients, "")
	for m.p.Counts().Serving > 1 {
		time.Sleep(time.Millisecond)
	}
	testsupport.Equal(t, m.p.Drain(t.Context()), 0, "%d cut")
	m.await(0, openClients, "")
	if _, err := parked.Read(make([]byte, 1)); err != io.EOF { // without close_notify the error is another one
		t.Errorf("the parked connection ended with %v", err)
	}
}

// A client that reads a long response slowly has write_timeout for all of it, not for each TLS
// record.
func TestSlowReaderOverTLSHasOneWriteTimeoutForAResponse(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.WriteTimeout, o.MaxBufferedBytes = time.Second, 1<<30 }), bids("a", strings.Repeat("x", 1_000_000)))
	c := m.dialTLS("http/1.1")
	c.NetConn().(*net.TCPConn).SetReadBuffer(4096)
	io.WriteString(c, strings.Repeat("GET /fill HTTP/1.1\r\nHost: a\r\n\r\n", 100))
	buf := make([]byte, 16<<10)
	for m.series(openClients, "") > 0 && m.routesCounted()["r"] < 20 {
		if _, err := c.Read(buf); err != nil { // a record or so at a time, well within the timeout
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	m.await(0, openClients, "")
	m.await(0, "adbuffer_buffered_bytes", "")
	n := m.routesCounted()["r"]
	testsupport.True(t, n < 20, "%v requests got a response: the connection was not closed", n)
}
