package proxy_test

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

// ads responds with length bytes.
func ads(name string, length int) bidder {
	ad := strings.Repeat("x", length)
	return bidder{name: name, most: length, handler: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(length))
		io.WriteString(w, ad)
	}}
}

// A client that reads nothing must not take all memory for responses, or an SSP's whole share of it: the requests
// of all other clients would end as overloaded.
func TestResponsesThatAreUnreadForLongestMakeRoomForOthers(t *testing.T) {
	const length, most = 60_000, 1 << 20
	for name, limit := range map[string]struct{ all, share int64 }{"all responses": {most, 0}, "those of an SSP": {16 * most, most}} {
		t.Run(name, func(t *testing.T) {
			ssp := ads("a", length)
			ssp.share = limit.share
			m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.MaxBufferedBytes = limit.all }), ssp)
			for range 2 { // connections, which have limits of their own
				f := m.frames(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
				for i := range uint32(16) {
					f.request(2*i+1, true)
				}
			}
			const kept = most / 2 / length
			testsupport.Eventually(t, "all other responses refused or dropped", func() bool {
				held := m.series("adbuffer_buffered_bytes", "")
				// A refusal is a response too. It can wait, make room, and be dropped.
				return m.series("adbuffer_requests_total", "overloaded")+m.series(clientsDropped, "response") >= 2*16-kept &&
					held <= kept*length && held >= (kept-1)*length
			})
			others := m.client(true)
			for range 10 {
				res, body := m.ask(others, "GET", "/fill", "")
				testsupport.MustTrue(t, res.StatusCode == 200 && len(body) == length, "another client gets %d and %d bytes", res.StatusCode, len(body))
			}
		})
	}
}

// Over HTTP/1, the connection of the response that is unread for longest is closed.
func TestConnectionsThatAreUnreadForLongestMakeRoomForOthers(t *testing.T) {
	const length, n = 6 << 20, 6 // more than a socket holds
	m := newModeProxy(t, route.Single, func(o *proxy.Options, _ *route.Route) { o.MaxBufferedBytes = n * (length + 8<<10) }, ads("a", length))
	var unread []net.Conn
	for i := range n {
		c := m.dial()
		unread = append(unread, c)
		send(t, c, "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n")
		m.await(float64(i+1), "adbuffer_requests_total", "fill")
	}
	m.await(n/2, clientsDropped, "response")
	m.await(n/2*length, "adbuffer_buffered_bytes", "")
	res, body := m.do("GET", "/fill")
	testsupport.True(t, res.StatusCode == 200 && len(body) == length, "another client gets %d and %d bytes", res.StatusCode, len(body))
	whole := 0
	for _, c := range unread {
		c.SetReadDeadline(time.Now().Add(testsupport.Patience))
		if n, _ := io.Copy(io.Discard, io.LimitReader(c, length)); n == length {
			whole++
		}
	}
	// The response to the other client may have waited too.
	dropped := m.series(clientsDropped, "response")
	testsupport.True(t, float64(whole) == n-dropped && dropped <= n/2+1, "%d of %d responses arrive whole, and %v were dropped", whole, n, dropped)
}

// Responses without an SSP take memory too: without a bound, 1.2 MB of requests for no route, with a window of 0,
// make adbuffer hold 400 MB.
func TestUnreadResponsesWithoutAnSSPMakeRoomForOthers(t *testing.T) {
	const connections, streams, most = 8, 50, 1 << 20
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.MaxBufferedBytes = most }), ads("a", 10))
	for range connections {
		f := m.frames(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		for i := range uint32(streams) {
			f.request(2*i+1, true, ":path", "/none")
		}
	}
	testsupport.Eventually(t, "all requests are refused", func() bool { return m.seriesOf("adbuffer_requests_total", "no_route", "none") == connections*streams })
	testsupport.Eventually(t, "all responses beyond half of the memory are dropped", func() bool {
		return m.series(clientsDropped, "response") > connections*streams-most/2/(4<<10)
	})
}

// Frames that wait for a client are memory beside the responses that they carry.
func TestFramesOfAClientThatReadsNothingAreCounted(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLS, bidder{name: "a", handler: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("v", 7_000))
		w.WriteHeader(http.StatusNoContent)
	}})
	f := m.frames(t)
	testsupport.NoError(t, f.conn.NetConn().(*net.TCPConn).SetReadBuffer(4<<10))
	id := uint32(1)
	testsupport.Eventually(t, "the socket is full", func() bool {
		for range 20 {
			f.request(id, true)
			id += 2
		}
		return m.series("adbuffer_buffered_bytes", "") > 64<<10
	})
	f.conn.Close()
	m.await(0, "adbuffer_buffered_bytes", "")
}
