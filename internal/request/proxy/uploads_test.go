package proxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

const (
	clientsDropped = "adbuffer_clients_dropped_total"
	inFlight       = "adbuffer_in_flight_requests"
)

// awaitUploads waits until n requests are uploads.
func (m *modeProxy) awaitUploads(n int) {
	m.t.Helper()
	testsupport.Eventually(m.t, fmt.Sprintf("%d uploads", n), func() bool { return m.p.Snapshot().Uploads == n })
}

func post(length int) string {
	return fmt.Sprintf("POST /fill HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", length)
}

// A claimed length takes no memory, and does not count as a request in flight. Twenty bodies of the largest size
// exceed the budget and the limit of requests in flight.
func TestClaimedBodiesTakeNothingFromOthers(t *testing.T) {
	small := func(o *proxy.Options, _ *route.Route) { o.MaxInFlight = 4 }
	t.Run("HTTP/1", func(t *testing.T) {
		m := newModeProxy(t, route.Single, small, echoes("a"))
		for i := range 20 {
			c := m.dialRaw()
			if i%2 == 0 {
				c.send(0, post(1<<18))
			} else {
				c.send(0, "POST /fill HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n40000\r\n")
			}
		}
		m.awaitUploads(20)
		m.wantOthersServed(20 * 4096)
	})
	t.Run("HTTP/2", func(t *testing.T) {
		m := newModeProxy(t, route.Single, func(o *proxy.Options, rt *route.Route) {
			small(o, rt)
			overTLS(o, rt)
		}, echoes("a"))
		f := m.frames(t)
		for i := range uint32(20) {
			f.request(2*i+1, false, ":method", "POST", "content-length", "262144")
		}
		m.awaitUploads(20)
		m.wantOthersServed(20 * 4096)
		f.request(101, true)
		f.want(101, "200")
	})
}

// A request is an upload until its body has arrived, and not while it waits for its SSP.
func TestForwardedRequestIsNoUpload(t *testing.T) {
	received, respond := make(chan struct{}), make(chan struct{})
	m := newModeProxy(t, route.Single, nil, bidder{name: "a", handler: func(w http.ResponseWriter, _ *http.Request) {
		close(received)
		<-respond
		w.Write([]byte("{}"))
	}})
	c := m.dialRaw()
	c.send(0, post(3))
	m.awaitUploads(1)
	c.send(0, "abc")
	<-received
	m.awaitUploads(0)
	close(respond)
	c.wants(200)
}

// wantOthersServed checks that other clients' requests get a response, and that at most so many
// bytes are held beside them.
func (m *modeProxy) wantOthersServed(most float64) {
	m.t.Helper()
	testsupport.AtMost(m.t, m.series("adbuffer_buffered_bytes", ""), most, "%v bytes are held for bodies that have not begun to arrive")
	testsupport.Equal(m.t, m.series(inFlight, ""), 0, "%v requests are in flight")
	body := strings.Repeat("x", 100_000)
	for range 3 {
		if m.options.TLS != nil {
			f := m.frames(m.t.(*testing.T))
			f.request(1, false, ":method", "POST")
			f.framer.WriteData(1, true, []byte(body[:10_000]))
			f.want(1, "200")
			continue
		}
		c := m.dialRaw()
		c.send(0, post(len(body))+body+getFill)
		c.wants(200, 200)
	}
}

// If max_uploads is reached, the oldest upload gets 408, and its connection is closed, in whichever order the bytes
// of the uploads arrive.
func TestUploadThatHasBeenArrivingForLongestMakesRoom(t *testing.T) {
	m := newModeProxy(t, route.Single, func(o *proxy.Options, _ *route.Route) { o.MaxUploads = 3 }, echoes("a"))
	var uploads []*rawClient
	for i := range 10 {
		c := m.dialRaw()
		c.send(0, post(5)+"ab")
		uploads = append(uploads, c)
		m.awaitUploads(min(i+1, 3))
		if i < 3 {
			continue
		}
		oldest := uploads[i-3]
		res, body := oldest.response("POST")
		testsupport.True(t, res.StatusCode == 408 && res.Close && strings.Contains(body, "server.max_uploads"), "the oldest of four: %d %s", res.StatusCode, body)
		oldest.wantEnd()
		m.await(float64(i-2), clientsDropped, "body")
		uploads[i-1].send(0, "c") // this does not change its age
	}
	// Requests without a body, or whose body arrives with the head, never count as uploads.
	for range 5 {
		m.dialRaw().send(0, post(3)+"abc"+getFill)
	}
	m.await(10, "adbuffer_requests_total", "fill")
	for _, c := range uploads[7:] {
		c.send(0, "xyz")
		res, body := c.response("POST")
		testsupport.True(t, res.StatusCode == 200 && strings.HasPrefix(body, `POST "ab`), "an upload that stayed: %d %s", res.StatusCode, body)
	}
	m.awaitUploads(0)
	testsupport.Equal(t, m.series(clientsDropped, "body"), 7, "%v uploads are counted as dropped")
	testsupport.Equal(t, m.p.Snapshot().UploadsLimit, 3, "limit %d")
	m.reload(func(o *proxy.Options) { o.MaxUploads = 1 })
	testsupport.Equal(t, m.p.Snapshot().UploadsLimit, 1, "limit %d after a reload to 1")
}

// The client continues to send after the response. Its connection is not reset, since its kernel
// might then discard the response.
func TestUploadCancelledForAnotherOneGetsAResponseThoughItContinues(t *testing.T) {
	m := newModeProxy(t, route.Single, func(o *proxy.Options, _ *route.Route) { o.MaxUploads = 1 }, echoes("a"))
	c := m.dialRaw()
	c.send(0, post(100_000)+"a")
	m.awaitUploads(1)
	m.dialRaw().send(0, post(2)+"a")
	m.await(1, clientsDropped, "body")
	for range 3 { // the server's lingering bounds the time of these writes
		c.send(0, strings.Repeat("a", 1000))
		time.Sleep(5 * time.Millisecond)
	}
	c.wants(408)
	c.wantEnd()
}

func TestStreamThatHasBeenUploadingForLongestMakesRoom(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.MaxUploads = 2 }), echoes("a"))
	f := m.frames(t)
	for i := range uint32(2) {
		f.request(2*i+1, false, ":method", "POST")
		f.framer.WriteData(2*i+1, false, []byte("ab"))
		m.awaitUploads(int(i) + 1)
	}
	f.request(5, false, ":method", "POST")
	a := f.responseTo(1)
	testsupport.True(t, a.status == "408" && strings.Contains(a.body, "server.max_uploads"), "the oldest of three: %+v", a)
	for _, id := range []uint32{3, 5} {
		f.framer.WriteData(id, true, []byte("c"))
		f.want(id, "200")
	}
	m.await(1, clientsDropped, "body")
	m.awaitUploads(0)
}

// Over HTTP/2 a GET that leaves its stream open and sends no DATA has no body.
func TestGETWithABodyIsRefusedOverHTTP2(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLS, echoes("a"))
	f := m.frames(t)
	id := uint32(1)
	for _, row := range []struct {
		fields []string
		body   string
		status string
	}{
		{nil, "", "200"}, {nil, "x", "400"}, {[]string{"content-length", "1"}, "x", "400"}, {[]string{"content-length", "0"}, "", "200"},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			f.request(id, false, append([]string{":method", method}, row.fields...)...)
			f.framer.WriteData(id, true, []byte(row.body))
			a := f.responseTo(id)
			testsupport.True(t, a.status == row.status, "%s with %q and %v: %+v, want %s", method, row.body, row.fields, a, row.status)
			id += 2
		}
	}
}

// Bodies that have arrived almost completely must not take all of max_buffered_bytes, so that no SSP's response has
// room.
func TestUploadsThatHaveBeenArrivingForLongestMakeRoomForOthers(t *testing.T) {
	const length, n, most = 100_000, 20, 1 << 20
	for name, begin := range map[string]func(m *modeProxy){
		"HTTP/1": func(m *modeProxy) {
			for range n {
				m.dialRaw().send(0, post(length)+strings.Repeat("x", length-1))
			}
		},
		"HTTP/2": func(m *modeProxy) {
			for range n {
				f := m.frames(t)
				f.request(1, false, ":method", "POST", "content-length", fmt.Sprint(length))
				for sent := 0; sent < 60_000; sent += 12_000 {
					f.framer.WriteData(1, false, make([]byte, 12_000))
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModeProxy(t, route.Single, func(o *proxy.Options, rt *route.Route) {
				o.MaxBufferedBytes = most
				if name == "HTTP/2" {
					overTLS(o, rt)
				}
			}, echoes("a"))
			begin(m)
			testsupport.Eventually(t, "only half of the bytes in uploads", func() bool {
				now, ended := float64(m.p.Snapshot().Uploads), m.series(clientsDropped, "body")+m.series("adbuffer_requests_total", "overloaded")
				return now > 0 && now+ended == n && m.series("adbuffer_buffered_bytes", "") <= most/2
			})
			testsupport.True(t, m.series(clientsDropped, "body") != 0, "no upload was dropped")
			m.wantOthersServed(most / 2)
		})
	}
}

func TestABodyThatFindsNoRoomIsOverloadedOverHTTP2(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.MaxBufferedBytes = 5000 }), echoes("a"))
	res, body := m.ask(m.client(true), "POST", "/fill", strings.Repeat("x", 6000))
	m.want(res, 503, "proxy/overloaded")
	testsupport.True(t, strings.Contains(body, "server.max_buffered_bytes"), "body: %s", body)
}
