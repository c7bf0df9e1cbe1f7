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

	"golang.org/x/net/http2"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

func aborts(on bool) func(*proxy.Options, *route.Route) {
	return func(o *proxy.Options, _ *route.Route) {
		o.AbortOnClose = on
		o.MaxConnections, o.MaxInFlight, o.Deadline.Default = 5000, 5000, time.Minute
	}
}

func (c *rawClient) reset() error {
	c.SetLinger(0)
	return c.Close()
}

// leavings are the ways in which clients leave. begin sends three requests, and returns what ends them.
var leavings = map[string]struct {
	change func(*proxy.Options, *route.Route)
	begin  func(m *modeProxy) (leave []func())
}{
	"FIN of its sending half": {func(*proxy.Options, *route.Route) {}, leaveRaw((*rawClient).CloseWrite)},
	"FIN":                     {func(*proxy.Options, *route.Route) {}, leaveRaw((*rawClient).Close)},
	"RST":                     {func(*proxy.Options, *route.Route) {}, leaveRaw((*rawClient).reset)},
	"close_notify, which stays unread": {overTLS, func(m *modeProxy) (leave []func()) {
		for range 3 {
			c := m.dialTLS("http/1.1")
			send(m.t, c, getFill)
			leave = append(leave, func() { c.Close() })
		}
		return leave
	}},
	"RST_STREAM": {overTLS, func(m *modeProxy) (leave []func()) {
		f := threeStreams(m)
		for _, id := range []uint32{1, 3, 5} {
			leave = append(leave, func() { f.framer.WriteRSTStream(id, http2.ErrCodeCancel) })
		}
		return leave
	}},
	"close of HTTP/2": {overTLS, func(m *modeProxy) []func() {
		f := threeStreams(m)
		return []func(){func() { f.conn.Close() }}
	}},
}

func leaveRaw(leave func(*rawClient) error) func(m *modeProxy) []func() {
	return func(m *modeProxy) (all []func()) {
		for range 3 {
			c := m.dialRaw()
			c.send(0, getFill)
			all = append(all, func() { leave(c) })
		}
		return all
	}
}

func threeStreams(m *modeProxy) *frames {
	f := m.frames(m.t.(*testing.T))
	for _, id := range []uint32{1, 3, 5} {
		f.request(id, true)
	}
	return f
}

// A client that leaves in any way cancels its request, in each mode, and no other SSP gets it. The SSPs of this test
// respond only after adbuffer has abandoned their requests.
func TestClientThatLeavesCancelsItsRequest(t *testing.T) {
	for _, mode := range []route.Mode{route.Single, route.Split, route.Waterfall, route.ParallelFirst, route.ParallelAll} {
		for name, way := range leavings {
			if mode != route.Single && name != "FIN" && name != "RST_STREAM" {
				continue // a mode does not know how the client left
			}
			t.Run(fmt.Sprintf("mode %s, %s", mode, name), func(t *testing.T) {
				var received atomic.Int32
				ssp := neverRespondsCounting(&received)
				m := newModeProxy(t, mode, func(o *proxy.Options, rt *route.Route) {
					aborts(true)(o, rt)
					way.change(o, rt)
				}, ssp("a"), ssp("b"))
				requests := int32(3)
				if mode == route.ParallelFirst || mode == route.ParallelAll {
					requests *= 2
				}
				leave := way.begin(m)
				for received.Load() < requests {
					time.Sleep(time.Millisecond)
				}
				for i, one := range leave {
					one()
					m.await(float64(3*(i+1)/len(leave)), "adbuffer_requests_total", "client_gone")
				}
				m.await(0, inFlight, "")
				testsupport.Equal(t, received.Load(), requests, "the SSPs got %d requests")
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

// Many clients disconnect, and the clients of the four requests at the SSP disconnect last.
// The four requests are abandoned, no other request is sent, and the next request finds no trace of
// them.
func TestACrowdOfClientsThatLeavesHoldsNothing(t *testing.T) {
	const clients, conns = 200, 4
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
	testsupport.True(t, len(received) == conns+1, "%d requests were sent, want %d: %q", len(received), conns+1, received)
}
