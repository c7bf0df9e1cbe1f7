package proxy_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"testing"

	"adbuffer/internal/proxy"
	"adbuffer/internal/route"
	"adbuffer/internal/testsupport"
)

// handedOn is a connection of a PROXY-protocol listener.
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

func TestAPROXYHeaderNamesTheClient(t *testing.T) {
	for _, change := range []func(*proxy.Options, *route.Route){nil, overTLS} {
		m := newModeProxy(t, route.Single, change, bidder{name: "a", handler: func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, r.Header.Get("X-Forwarded-For"))
		}})
		inner := testsupport.Listen(t)
		l := handingOn{inner, make(chan handedOn, 3)}
		served := make(chan error, 1)
		go func() { served <- m.p.Serve(l) }()
		m.url = "http://" + inner.Addr().String()

		stalled, now := make(chan struct{}), make(chan struct{})
		close(now)
		l.next <- handedOn{wait: stalled}
		l.next <- handedOn{wait: now, client: netip.MustParseAddr("203.0.113.9")}
		l.next <- handedOn{wait: now, err: os.ErrInvalid}
		first := m.dial()
		dial := func() net.Conn {
			if change != nil {
				return m.dialTLS()
			}
			return m.dial()
		}
		c := dial()
		if got := exchange(t, c, "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n", 200); got != "203.0.113.9" {
			t.Errorf("the SSP received %q", got)
		}
		bad := m.dial()
		if n, err := bad.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Error("served with a bad header")
		}
		close(stalled)
		for _, c := range []net.Conn{c, bad, first} {
			c.Close()
		}
		m.p.Drain(context.Background())
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}
