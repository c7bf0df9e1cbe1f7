package http2

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/socket"
)

// tlsServer is a net/http server with HTTP/2 over TLS.
func tlsServer(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // the tests close client connections
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// dialTLS returns a connection as a dialer would make it, with h2 negotiated.
func dialTLS(t testing.TB, addr string) net.Conn {
	t.Helper()
	raw, err := net.Dial("tcp", addr)
	testsupport.NoError(t, err)
	c := tls.Client(socket.New(raw), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	testsupport.NoError(t, c.Handshake())
	return c
}

// open starts HTTP/2 on c, which is a TCP connection, or TLS on a socket.Conn.
func open(t testing.TB, c net.Conn, opts Options) (*Conn, *owner) {
	t.Helper()
	o := newOwner()
	if tcp, ok := c.(*net.TCPConn); ok {
		c = socket.New(tcp)
	}
	conn := New(c, socketOf(c), o, opts)
	t.Cleanup(func() { conn.Close(exchange.ClosedDrain) })
	return conn, o
}

// echo responds with the request's target and body.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Target", r.URL.RequestURI())
	w.Header().Set("X-Length", strconv.Itoa(len(body)))
	w.Write(body)
	if len(body) == 0 {
		io.WriteString(w, r.URL.RequestURI())
	}
}
