package proxy_test

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"adbuffer/internal/proxy"
	"adbuffer/internal/route"
)

const getFill = "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n"

func parksSoon(o *proxy.Options, _ *route.Route) { o.ReduceIdleMemory = true }

func TestDrainWaitsForTheFirstRequestOfANewConnection(t *testing.T) {
	m := newModeProxy(t, route.Single, parksSoon, bids("a", "{}"))
	c, err := net.Dial("tcp", m.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m.await(1, openClients, "")
	for m.p.Serving() > 0 { // a slow machine polls late
		time.Sleep(time.Millisecond)
	}
	drained := make(chan int)
	go func() { drained <- m.p.Drain(t.Context()) }()
	time.Sleep(20 * time.Millisecond) // the proxy would have closed the connection by now
	exchange(t, c, getFill, http.StatusOK)
	if cut := <-drained; cut != 0 {
		t.Errorf("%d cut", cut)
	}
	if _, err := c.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // only io.EOF is a clean end
		t.Errorf("the connection ended with %v", err)
	}
}

func TestDrainEndsThoughANewConnectionSendsNoRequest(t *testing.T) {
	m := newModeProxy(t, route.Single, nil, bids("a", "{}"))
	c, err := net.Dial("tcp", m.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m.await(1, openClients, "")
	if cut := m.p.Drain(t.Context()); cut != 0 {
		t.Errorf("%d cut", cut)
	}
	m.await(0, openClients, "")
}

// A parked connection on which a request arrived before the close is served, however late its
// goroutine runs.
func TestDrainServesRequestsThatWakeParkedClients(t *testing.T) {
	m := newModeProxy(t, route.Single, parksSoon, bids("a", "{}"))
	var clients []net.Conn
	for range 64 {
		c, err := net.Dial("tcp", m.addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		exchange(t, c, getFill, http.StatusOK)
		clients = append(clients, c)
	}
	for m.p.Serving() > 0 {
		time.Sleep(time.Millisecond)
	}
	for _, c := range clients {
		if _, err := io.WriteString(c, getFill); err != nil {
			t.Fatal(err)
		}
	}
	if cut := m.p.Drain(t.Context()); cut != 0 {
		t.Errorf("%d cut", cut)
	}
	for _, c := range clients {
		exchange(t, c, "", http.StatusOK)
	}
}

// A Serve that begins after Drain ends at once; its listener would accept forever.
func TestServeAfterDrainEnds(t *testing.T) {
	m := newModeProxy(t, route.Single, nil, says("a", 204))
	m.p.Drain(t.Context())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.p.Serve(l); err != nil {
		t.Error(err)
	}
}
