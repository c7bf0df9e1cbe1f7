package http2

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"adbuffer/internal/socket"
	"adbuffer/internal/upstream"
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

// tlsTo returns a connection as a dialer would make it, with h2 negotiated.
func tlsTo(addr string) (net.Conn, error) {
	raw, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	c := tls.Client(socket.New(raw), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	return c, c.Handshake()
}

func dialTLS(t testing.TB, addr string) net.Conn {
	t.Helper()
	c, err := tlsTo(addr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// open starts HTTP/2 on c, which is a TCP connection, or TLS on a socket.Conn.
func open(t testing.TB, c net.Conn, opts Options) (*Conn, *owner) {
	t.Helper()
	o := newOwner()
	if tcp, ok := c.(*net.TCPConn); ok {
		c = socket.New(tcp)
	}
	conn := New(c, o, opts)
	t.Cleanup(func() { conn.Close(upstream.ClosedDrain) })
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

func TestManyCallersOfAGoServerGetTheirOwnResponses(t *testing.T) {
	s := tlsServer(t, http.HandlerFunc(echo))
	conn, o := open(t, dialTLS(t, s.Listener.Addr().String()), testOptions())
	const callers, each = 32, 50
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for j := range each {
				r := get(fmt.Sprintf("/%d/%d", i, j))
				want := r.target
				if j%2 == 1 {
					r.method, r.body = upstream.POST, fmt.Sprintf("body %d of %d", j, i)
					want = r.body
				}
				r.timeout = time.Minute
				if res := r.do(conn); res.err != nil || res.body != want {
					t.Errorf("got %v %q, want %q", res.err, res.body, want)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := o.freed.Load(); n != callers*each {
		t.Errorf("%d places were freed, want %d", n, callers*each)
	}
}
