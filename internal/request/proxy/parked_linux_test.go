package proxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

// parkedKinds are the kinds of clients that may be idle. connect returns a client that has made a
// request, and ask makes another one.
var parkedKinds = map[string]struct {
	change  func(*proxy.Options, *route.Route)
	connect func(m *modeProxy) net.Conn
	ask     func(tb testing.TB, c net.Conn)
}{
	"cleartext": {func(*proxy.Options, *route.Route) {}, func(m *modeProxy) net.Conn {
		c, err := net.Dial("tcp", m.addr())
		testsupport.NoError(m.t, err)
		askHTTP1(m.t, c)
		return c
	}, askHTTP1},
	"TLS": {overTLS, func(m *modeProxy) net.Conn {
		c := m.connectTLS("http/1.1")
		askHTTP1(m.t, c)
		return c
	}, askHTTP1},
	"HTTP/2": {overTLS, func(m *modeProxy) net.Conn {
		s := newStreamClient(m.connectTLS("h2"))
		s.request()
		s.readResponses(m.t, 1)
		return s.conn
	}, pingHTTP2},
}

func askHTTP1(tb testing.TB, c net.Conn) { sendAndRead(tb, c, getFill, 200) }

// pingHTTP2 sends a PING and reads up to its acknowledgement.
func pingHTTP2(tb testing.TB, c net.Conn) {
	tb.Helper()
	fr := http2.NewFramer(c, c)
	data := [8]byte{byte(rand.Int())}
	if err := fr.WritePing(false, data); err != nil {
		tb.Error(err)
		return
	}
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			tb.Error(err)
			return
		}
		if p, ok := f.(*http2.PingFrame); ok && p.IsAck() && p.Data == data {
			return
		}
	}
}

// parksMany keeps parked clients for idle, and may have many.
func parksMany(change func(*proxy.Options, *route.Route), idle time.Duration, more ...func(*proxy.Options, *route.Route)) func(*proxy.Options, *route.Route) {
	return func(o *proxy.Options, rt *route.Route) {
		for _, f := range append(more, change) {
			f(o, rt)
		}
		o.IdleTimeout, o.MaxConnections, o.MaxInFlight = idle, 5000, 5000
	}
}

// fewConns limits the connections to b, since each has goroutines.
func fewConns(b bidder) bidder {
	b.conns = 4
	return b
}

func (m *modeProxy) connectMany(n int, connect func(*modeProxy) net.Conn) (all []net.Conn) {
	m.t.Helper()
	for range n {
		c := connect(m)
		m.t.Cleanup(func() { c.Close() })
		all = append(all, c)
	}
	return all
}

// Parked clients of any kind need no goroutine. Requests of all of them at once are all served.
func TestParkedClientsNeedNoGoroutine(t *testing.T) {
	testsupport.Long(t)
	const n, most = 50, 30
	for name, kind := range parkedKinds {
		t.Run(name, func(t *testing.T) {
			m := newModeProxy(t, route.Single, parksMany(kind.change, time.Hour), fewConns(bids("a", "{}")))
			kind.connect(m).Close()
			m.await(0, openClients, "")
			before := runtime.NumGoroutine()
			all := m.connectMany(n, kind.connect)
			for range 2 {
				m.awaitParked()
				testsupport.Eventually(t, fmt.Sprintf("%d goroutines, and as few for %d parked clients", before, n), func() bool { return runtime.NumGoroutine() <= before+most })
				m.await(n, openClients, "")
				var asking sync.WaitGroup
				for _, c := range all {
					asking.Go(func() { kind.ask(t, c) })
				}
				asking.Wait()
			}
		})
	}
}

// A connection's requests count together, also if it was parked in between. A PING is no request.
func TestTheRequestsOfAConnectionAreCountedAtItsEnd(t *testing.T) {
	for name, want := range map[string]struct {
		requests float64 // on both connections
		single   uint64
	}{"cleartext": {3, 1}, "TLS": {3, 1}, "HTTP/2": {2, 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind := parkedKinds[name]
			m := newModeProxy(t, route.Single, parksMany(kind.change, time.Hour), bids("a", "{}"))
			c := kind.connect(m)
			m.awaitParked()
			kind.ask(t, c)
			c.Close()
			kind.connect(m).Close()
			m.dial().Close() // without a request
			m.await(3, "adbuffer_client_connections_accepted_total", "")
			m.await(0, openClients, "")
			testsupport.Equal(t, m.series("adbuffer_client_requests_per_connection", ""), want.requests, "the connections carried %v requests")
			is := m.p.Connections()
			testsupport.Equal(t, is.Single, want.single, "%d connections carried one request")
			testsupport.Equal(t, is.SinglePeer.String(), "127.0.0.1", "the last one was of %s")
		})
	}
}

// A parked client that sends no byte within idle_timeout is closed. A drain closes parked clients before that, with a
// timeout and without one.
func TestParkedClientsAreClosedAtIdleTimeoutAndByADrain(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, kind := range parkedKinds {
		for why, drain := range map[string]context.Context{"idle_timeout": nil, "drain": t.Context(), "drain that ends at once": over} {
			t.Run(name+", "+why, func(t *testing.T) {
				t.Parallel()            // most of the time is idle_timeout
				idle := 3 * time.Second // a slow machine needs some of it for the first request
				if drain != nil {
					idle = time.Hour
				}
				m := newModeProxy(t, route.Single, parksMany(kind.change, idle), bids("a", "{}"))
				all := m.connectMany(3, kind.connect)
				if drain != nil {
					m.awaitParked()
					cut := m.p.Drain(drain)
					testsupport.True(t, cut == 0 || drain == over, "%d cut", cut)
				}
				for _, c := range all {
					_, err := io.Copy(io.Discard, c)
					testsupport.True(t, err == nil || drain == over, "a connection ended with %v", err)
				}
				m.await(0, openClients, "")
			})
		}
	}
}

// Clients send a request, wait about as long as parking takes, close and connect again. Each
// request reaches the SSP once and gets its own response, and no resource is left in use.
func TestClientsParkedAtAnyMomentLoseNoRequest(t *testing.T) {
	testsupport.Long(t)
	const clients, rounds = 20, 6
	changes := map[string]func(*proxy.Options, *route.Route){"cleartext": h2c, "TLS": overTLS, "HTTP/2": overTLS, "HTTP/2 in cleartext": h2c}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			var received sync.Map
			echo := bidder{name: "a", handler: func(w http.ResponseWriter, r *http.Request) {
				_, again := received.LoadOrStore(r.URL.RawQuery, true)
				testsupport.True(t, !again, "%s is sent twice", r.URL.RawQuery)
				io.WriteString(w, r.URL.RawQuery)
			}}
			m := newModeProxy(t, route.Single, parksMany(change, time.Hour), echo)
			ask := askRaw
			if strings.HasPrefix(name, "HTTP/2") {
				ask = askByTransport
			}
			var asking sync.WaitGroup
			for i := range clients {
				asking.Go(func() {
					dice := rand.New(rand.NewPCG(1, uint64(i)))
					client := ask(m, name)
					defer client(0, "")
					for j := range rounds {
						time.Sleep(time.Duration(dice.IntN(25_000)) * time.Microsecond)
						id := fmt.Sprintf("id=%d-%d", i, j)
						if got := client(dice.IntN(4), id); got != id {
							t.Errorf("%s got %q", id, got)
							return
						}
					}
				})
			}
			asking.Wait()
			m.await(0, openClients, "")
			testsupport.Eventually(t, "no socket is left", func() bool { return socketsOf(t, m.addr()) == 0 })
		})
	}
}

// asker sends a request in one of four ways and returns its response. With id "" it closes its
// connection.
type asker func(way int, id string) string

// askRaw sends a request over HTTP/1. Its ways differ in the bytes after and within the request.
func askRaw(m *modeProxy, kind string) asker {
	var c net.Conn
	var r *bufio.Reader
	return func(way int, id string) string {
		if id == "" {
			c.Close()
			return ""
		}
		if c == nil {
			var err error
			if c, err = net.Dial("tcp", m.addr()); err != nil {
				return err.Error()
			}
			if kind == "TLS" {
				c = tls.Client(c, clientTLS())
			}
			r = bufio.NewReader(c)
		}
		head, rest := "GET /fill?"+id+" HTTP/1.1\r\n", "Host: a\r\n\r\n"
		if way == 0 { // in two pieces
			io.WriteString(c, head)
			time.Sleep(time.Millisecond)
			head = ""
		}
		io.WriteString(c, head+rest)
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			return err.Error()
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			return err.Error()
		}
		if way == 1 {
			time.Sleep(10 * time.Millisecond) // the connection is parked at about this time
		}
		if way <= 2 && id[len(id)-1]%2 == 0 {
			c.Close()
			c = nil
		}
		return string(body)
	}
}

// askByTransport sends a request over HTTP/2, on its own connection.
func askByTransport(m *modeProxy, kind string) asker {
	protocols, url := new(http.Protocols), m.https("/fill?")
	protocols.SetHTTP2(true)
	if kind != "HTTP/2" {
		protocols.SetUnencryptedHTTP2(true)
		url = m.url + "/fill?"
	}
	transport := &http.Transport{TLSClientConfig: clientTLS(), Protocols: protocols}
	return func(way int, id string) string {
		if id == "" || way == 0 {
			transport.CloseIdleConnections()
		}
		if id == "" {
			return ""
		}
		res, err := (&http.Client{Transport: transport}).Get(url + id)
		if err != nil {
			return err.Error()
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			return err.Error()
		}
		return string(body)
	}
}

// socketsOf returns how many sockets at addr are connected, or have been closed by the
// client alone.
func socketsOf(t *testing.T, addr string) (n int) {
	t.Helper()
	table, err := os.ReadFile("/proc/self/net/tcp")
	testsupport.NoError(t, err)
	var port int
	fmt.Sscanf(addr, "127.0.0.1:%d", &port)
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && (f[3] == "01" || f[3] == "08") {
			n++
		}
	}
	return n
}
