package proxy_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/logs"
)

// A client that opens no window holds bounded memory for a bounded time. Its response counts
// against max_buffered_bytes until write_timeout resets the stream.
func TestSlowReaderHoldsBoundedMemoryForBoundedTime(t *testing.T) {
	big := strings.Repeat("x", 100_000)
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.MaxBufferedBytes = 700_000 }), bids("a", big))
	closed := http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}
	const n = 20
	ask := func() *frames {
		f := m.frames(t, closed)
		for i := range uint32(n) {
			f.request(2*i+1, true)
		}
		return f
	}
	f := ask()
	// Each request is refused, or its response waits or is dropped. Refusals wait too, so they may be
	// dropped as well.
	testsupport.Eventually(t, "the responses hold at most half of the limit", func() bool {
		held := m.series("adbuffer_buffered_bytes", "")
		ended := m.series("adbuffer_requests_total", "overloaded") + m.series("adbuffer_requests_total", "fill")
		return ended == n && held >= 100_000 && held <= 700_000/2
	})
	f.conn.Close()
	m.await(0, "adbuffer_buffered_bytes", "")

	m.reload(func(o *proxy.Options) { o.WriteTimeout = time.Second })
	f = ask()
	for range n {
		f.awaitReset(func(r *http2.RSTStreamFrame) bool { return r.ErrCode != http2.ErrCodeNo })
	}
	m.await(0, "adbuffer_buffered_bytes", "")
	m.p.Reload(m.options, route.NewTable([]*route.Route{m.same()}))
	f.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	f.framer.WriteWindowUpdate(0, 1<<20)
	f.request(2*n+1, true)
	a := f.responseTo(2*n + 1)
	testsupport.True(t, a.status == "200" && len(a.body) == len(big), "afterwards: %s of %d bytes", a.status, len(a.body))
}

// The unread responses of one connection are bounded. Another client gets its response, and all
// bytes and requests are released in the end.
func TestUnreadResponsesOfAConnectionAreBounded(t *testing.T) {
	const size, n, bound = 300_000, 16, 2 << 20
	all := make(chan struct{})
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) {
		o.MaxBufferedBytes, o.Access = 16*bound, logs.AccessOptions{Enabled: true, Failures: true}
	}), bidder{name: "a", handler: func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Hold") != "" {
			<-all // so that no stream is refused because of another's response
		}
		io.WriteString(w, strings.Repeat("x", size))
	}})
	f := m.frames(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
	for i := range uint32(n) {
		f.request(2*i+1, true, "x-hold", "1")
	}
	m.await(n, "adbuffer_in_flight_requests", "")
	close(all)
	f.conn.SetReadDeadline(time.Now().Add(testsupport.Patience))
	const resets = n - bound/size
	for range resets {
		f.awaitReset(func(r *http2.RSTStreamFrame) bool { return r.ErrCode == http2.ErrCodeEnhanceYourCalm })
	}
	m.await(0, "adbuffer_in_flight_requests", "")
	m.await(bound/size*size, "adbuffer_buffered_bytes", "")
	m.awaitError(resets, "http2", "violation")
	f.request(2*n+1, true)
	refused := f.awaitReset(func(r *http2.RSTStreamFrame) bool { return r.StreamID == 2*n+1 })
	testsupport.True(t, refused.ErrCode == http2.ErrCodeRefusedStream, "a new stream is reset with %v", refused.ErrCode)
	detail, _ := m.onlyLine(t)["error"].(string)
	testsupport.True(t, strings.Contains(detail, "server.max_buffered_bytes"), "the refused stream is logged as %q", detail)
	other := m.frames(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	other.framer.WriteWindowUpdate(0, 1<<20)
	other.request(1, true)
	a := other.responseTo(1)
	testsupport.True(t, a.status == "200" && len(a.body) == size, "another client: %s of %d bytes", a.status, len(a.body))
	f.conn.Close()
	m.await(0, "adbuffer_buffered_bytes", "")
}

// A client that reads nothing is closed when its socket has been full for write_timeout.
func TestClientThatReadsNothingIsClosed(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.WriteTimeout, o.MaxBufferedBytes = time.Second, 1<<30 }), bids("a", strings.Repeat("x", 900_000)))
	f := m.frames(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	f.conn.NetConn().(*net.TCPConn).SetReadBuffer(4096)
	f.framer.WriteWindowUpdate(0, 1<<30)
	// Streams are reset too. A slow machine may reset streams that would have filled the socket, so
	// the client opens more until it is full.
	f.conn.SetWriteDeadline(time.Now().Add(20 * time.Second))
	for i := uint32(1); m.series(openClients, "") > 0 && i < 10_000; i += 2 {
		f.request(i, true)
		time.Sleep(5 * time.Millisecond)
	}
	m.await(0, openClients, "")
	m.await(0, "adbuffer_buffered_bytes", "")
}

// framesWithReadTimeout returns an HTTP/2 connection whose next message must arrive within 20 ms.
func framesWithReadTimeout(t *testing.T) (*modeProxy, *frames) {
	t.Helper()
	m := newModeProxy(t, route.Single, overTLS, bids("a", "{}"))
	f := m.frames(t)
	f.request(1, true)
	f.responseTo(1) // the handshake uses the default read_timeout
	m.reload(func(o *proxy.Options) { o.ReadTimeout = 20 * time.Millisecond })
	return m, f
}

// A body that stops arriving is refused after read_timeout.
func TestBodyThatStopsComingOverHTTP2IsATimeout(t *testing.T) {
	_, f := framesWithReadTimeout(t)
	f.request(3, false, ":method", "POST", "content-length", "10")
	f.framer.WriteData(3, false, []byte("half"))
	a := f.responseTo(3)
	testsupport.True(t, a.status == "408" && a.source == "proxy/bad_request", "%+v, want 408", a)
	f.request(5, true)
	f.want(5, "200")
}

// A header of any size leads to a result: adbuffer's response, the HTTP/2 server's, or the close of
// the connection.
func TestHeadsOverHTTP2AreBounded(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLS, bids("a", "{}"))
	for _, row := range []struct {
		name   string
		value  int
		times  int
		status string
		source string
	}{
		{"just fits", 16<<10 - 200, 1, "200", "ssp/a"},
		{"over max_header_bytes", 16 << 10, 1, "431", "proxy/too_large"},
		{"many fields", 1, 200, "431", "proxy/too_large"},
		{"over SETTINGS_MAX_HEADER_LIST_SIZE", 1500, 30, "431", "proxy/too_large"},
		{"one field over that", 50 << 10, 1, "431", "proxy/too_large"},
		{"much longer", 1500, 130, "", ""},
	} {
		f := m.frames(t)
		var fields []string
		for range row.times {
			fields = append(fields, "x-long", strings.Repeat("x", row.value))
		}
		f.request(1, true, fields...)
		a := f.responseTo(1)
		testsupport.True(t, a.status == row.status && a.source == row.source, "%s: %+v, want %s of %s", row.name, a, row.status, row.source)
	}
}

func TestIdleHTTP2ConnectionIsClosedWithGOAWAY(t *testing.T) {
	m := idlesSoon(t)
	f := m.frames(t)
	f.request(1, true)
	f.want(1, "204")
	wantGoAway(t, f.conn, f.framer, http2.ErrCodeNo)
	m.await(0, openClients, "")
}
