package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/proxy"
	"adbuffer/internal/route"
)

func aborts(on bool) func(*proxy.Options, *route.Route) {
	return func(o *proxy.Options, _ *route.Route) {
		o.AbortOnClose = on
		o.MaxConnections, o.MaxInFlight, o.Deadline.Default = 5000, 5000, time.Minute
	}
}

// closings are the ways in which a client disconnects.
var closings = map[string]func(*rawClient) error{
	"FIN of its sending half": (*rawClient).CloseWrite,
	"FIN":                     (*rawClient).Close,
	"RST":                     (*rawClient).reset,
}

func (c *rawClient) reset() error {
	c.SetLinger(0)
	return c.Close()
}

// A client that closes its connection cancels its request, in each mode. The SSPs of this test
// respond only after adbuffer has closed their connections.
func TestClientThatLeavesCancelsItsRequest(t *testing.T) {
	for _, mode := range []route.Mode{route.Single, route.Split, route.Waterfall, route.ParallelFirst, route.ParallelAll} {
		for name, leave := range closings {
			t.Run(fmt.Sprintf("mode %d, %s", mode, name), func(t *testing.T) {
				var received atomic.Int32
				ssp := neverRespondsCounting(&received)
				m := newModeProxy(t, mode, aborts(true), ssp("a"), ssp("b"))
				requests := int32(3)
				if mode == route.ParallelFirst || mode == route.ParallelAll {
					requests *= 2
				}
				var all []*rawClient
				for range 3 {
					c := m.dialRaw()
					c.send(0, getFill)
					all = append(all, c)
				}
				for received.Load() < requests {
					time.Sleep(time.Millisecond)
				}
				for i, c := range all[:2] {
					leave(c)
					m.await(float64(i+1), "adbuffer_requests_total", "client_gone")
				}
				if n := m.series("adbuffer_requests_total", "client_gone"); n != 2 {
					t.Errorf("%v requests were cancelled, 2 clients have left", n)
				}
				leave(all[2])
				m.await(3, "adbuffer_requests_total", "client_gone")
			})
		}
	}
}

// With abort_on_close: false only a reset cancels. A client that closes its sending half gets its
// response.
func TestClientThatClosesItsSendingHalfGetsItsResponseWithoutAbortOnClose(t *testing.T) {
	respond := make(chan struct{})
	m := newModeProxy(t, route.Single, aborts(false), bidder{name: "a", handler: func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-respond:
			io.WriteString(w, "{}")
		case <-r.Context().Done():
		}
	}})
	half, gone := m.dialRaw(), m.dialRaw()
	for _, c := range []*rawClient{half, gone} {
		c.send(0, getFill)
	}
	m.await(2, "adbuffer_in_flight_requests", "")
	half.CloseWrite()
	gone.reset()
	m.await(1, "adbuffer_requests_total", "client_gone")
	close(respond)
	half.wants(200)
	half.wantEnd()
}

// A thousand clients disconnect, and the clients of the four requests at the SSP disconnect last.
// The four requests are abandoned, no other request is sent, and the next request finds no trace of
// them.
func TestAThousandClientsThatLeaveHoldNothing(t *testing.T) {
	const clients, conns = 1000, 4
	var mu sync.Mutex
	var received []string
	sent := make(chan int, clients) // the clients whose requests reach the SSP
	slow := neverResponds("a").handler
	m := newModeProxy(t, route.Single, aborts(true), bidder{name: "a", conns: conns, handler: func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		received = append(received, fmt.Sprintf("%s from %s", r.URL.RawQuery, r.RemoteAddr))
		mu.Unlock()
		if i, err := strconv.Atoi(r.URL.Query().Get("slow")); err == nil {
			sent <- i
			slow(w, r)
			return
		}
		io.WriteString(w, "{}")
	}})
	all := make([]*rawClient, clients)
	for i := range all {
		all[i] = m.dialRaw()
		all[i].send(0, fmt.Sprintf("GET /fill?slow=%d HTTP/1.1\r\nHost: a\r\n\r\n", i))
	}
	m.await(clients, "adbuffer_in_flight_requests", "")
	var last []*rawClient
	for range conns {
		i := <-sent
		last, all[i] = append(last, all[i]), nil
	}
	var wg sync.WaitGroup
	for _, c := range all {
		if c != nil {
			wg.Go(func() { c.Close() })
		}
	}
	wg.Wait()
	m.await(clients-conns, "adbuffer_requests_total", "client_gone")
	for _, c := range last {
		c.Close()
	}
	next := m.dialRaw()
	next.send(0, getFill)
	next.wants(200)
	m.await(clients, "adbuffer_requests_total", "client_gone")
	m.await(0, "adbuffer_in_flight_requests", "")
	mu.Lock()
	defer mu.Unlock()
	if len(received) != conns+1 {
		t.Errorf("%d requests were sent, want %d: %q", len(received), conns+1, received)
	}
}
