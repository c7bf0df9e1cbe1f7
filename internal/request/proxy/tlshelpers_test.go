package proxy_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"adbuffer/internal/client/http1"
	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

// identity is a certificate for the proxy, and the pool of CAs that trusts it.
type identity struct {
	server *tls.Config
	roots  *x509.CertPool
}

// newIdentity is made once: keys take time.
var newIdentity = sync.OnceValue(func() identity {
	certificate := testsupport.Certificate("adbuffer.test")
	return identity{
		server: &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}, CurvePreferences: []tls.CurveID{tls.X25519},
			NextProtos: http1.NextProtos(), DynamicRecordSizingDisabled: true,
		},
		roots: testsupport.Roots(certificate),
	}
})

// clientTLS returns the configuration of a client that offers protocols by ALPN. Its keys cost little CPU.
func clientTLS(protocols ...string) *tls.Config {
	return &tls.Config{RootCAs: newIdentity().roots, ServerName: "adbuffer.test", NextProtos: protocols, CurvePreferences: []tls.CurveID{tls.X25519}}
}

// overTLS configures a proxy for TLS. Each handshake loads its certificate again, as when
// certificates are reloaded.
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

// dial connects. The end of the test closes the connection.
func (m *modeProxy) dial() net.Conn {
	m.t.Helper()
	c, err := net.Dial("tcp", m.addr())
	testsupport.NoError(m.t, err)
	m.t.Cleanup(func() { c.Close() })
	return c
}

// dialInBody connects, and sends the head of a request. It returns when the proxy has read that: then the
// connection makes no room for others.
func (m *modeProxy) dialInBody() net.Conn {
	m.t.Helper()
	c := m.dial()
	send(m.t, c, "POST /fill HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n")
	goAhead := make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))
	_, err := io.ReadFull(c, goAhead)
	testsupport.NoError(m.t, err)
	return c
}

func send(tb testing.TB, c io.Writer, text string) {
	tb.Helper()
	_, err := io.WriteString(c, text)
	testsupport.NoError(tb, err)
}

// reload changes the proxy's options.
func (m *modeProxy) reload(change func(*proxy.Options)) {
	m.t.Helper()
	o := m.options
	change(&o)
	m.p.Reload(o, route.NewTable([]*route.Route{m.same()}))
}

// dialTLS connects, offering protocols by ALPN. The end of the test closes the connection.
func (m *modeProxy) dialTLS(protocols ...string) *tls.Conn {
	m.t.Helper()
	c := m.connectTLS(protocols...)
	m.t.Cleanup(func() { c.Close() })
	return c
}

func (m *modeProxy) connectTLS(protocols ...string) *tls.Conn {
	m.t.Helper()
	c, err := tls.Dial("tcp", m.addr(), clientTLS(protocols...))
	testsupport.NoError(m.t, err)
	return c
}

// client returns a client of net/http over TLS, with or without HTTP/2. It waits as long as the
// test does.
func (m *modeProxy) client(http2 bool) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	transport := &http.Transport{
		TLSClientConfig: clientTLS(), Protocols: protocols,
		MaxIdleConnsPerHost: 100, DisableCompression: true,
	}
	m.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (m *modeProxy) https(path string) string { return "https://" + m.addr() + path }

// ask sends a request and reads the whole response.
func (m *modeProxy) ask(c *http.Client, method, path, body string, fields ...string) (*http.Response, string) {
	m.t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(m.t.Context(), method, m.https(path), r)
	testsupport.NoError(m.t, err)
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		req.Header.Add(name, value)
	}
	res, err := c.Do(req)
	testsupport.NoError(m.t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	testsupport.NoError(m.t, err)
	return res, string(b)
}

// await waits until a series has a value.
func (m *modeProxy) await(want float64, name, label string) {
	m.t.Helper()
	testsupport.Eventually(m.t, fmt.Sprintf("%s %s is %v", name, label, want), func() bool { return m.series(name, label) == want })
}

// awaitError waits until so many errors of clients have this reason.
func (m *modeProxy) awaitError(want float64, protocol, reason string) {
	m.t.Helper()
	testsupport.Eventually(m.t, fmt.Sprintf("%v errors of %s have the reason %s", want, protocol, reason), func() bool {
		return m.seriesOf(clientErrors, protocol, reason) == want
	})
}

// awaitParked waits until all connections are parked.
func (m *modeProxy) awaitParked() {
	m.t.Helper()
	testsupport.Eventually(m.t, "connections that are all parked", func() bool { return m.p.Counts().Serving == m.listeners })
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error) // net and crypto/tls do not wrap it
	return ok && e.Timeout()
}
