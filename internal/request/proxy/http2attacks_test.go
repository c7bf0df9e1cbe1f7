package proxy_test

import (
	"bytes"
	"crypto/tls"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

// batch collects frames, so that they leave in one write.
func (f *frames) batch(write func()) {
	f.t.Helper()
	var b bytes.Buffer
	framer := f.framer
	f.framer = http2.NewFramer(&b, nil)
	f.framer.AllowIllegalWrites = true
	write()
	f.framer = framer
	f.conn.Write(b.Bytes())
}

// wantGoAway checks the reason with which the connection closes.
func wantGoAway(t *testing.T, conn *tls.Conn, framer *http2.Framer, want http2.ErrCode) {
	t.Helper()
	code, ok := readGoAway(conn, framer)
	testsupport.True(t, ok && code == want, "ended with %v, %v, want %v", code, ok, want)
}

// readGoAway reads until the connection closes, and returns the reason; ok is false if there was no
// GOAWAY.
func readGoAway(conn *tls.Conn, framer *http2.Framer) (code http2.ErrCode, ok bool) {
	conn.SetReadDeadline(time.Now().Add(testsupport.Patience))
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return code, ok
		}
		if g, is := frame.(*http2.GoAwayFrame); is {
			code, ok = g.ErrCode, true
		}
	}
}

// counted is a proxy in front of an SSP that counts its requests.
func counted(t *testing.T) (m *modeProxy, received *atomic.Int64) {
	received = new(atomic.Int64)
	return newModeProxy(t, route.Single, overTLS, bidder{name: "a", handler: func(w http.ResponseWriter, _ *http.Request) {
		received.Add(1)
		w.Write([]byte("{}"))
	}}), received
}

// Too many frames that advance no request close the connection, and none of them reaches the SSP.
// The cases have the attacks' usual names.
func TestFloodsOverHTTP2EndTheConnection(t *testing.T) {
	m, received := counted(t)
	open := func(f *frames, id uint32) { f.request(id, false, ":method", "POST") }
	for _, row := range []struct {
		name  string
		begin func(f *frames)
		one   func(f *frames, i int)
	}{
		{"PING (CVE-2019-9512)", nil, func(f *frames, _ int) { f.framer.WritePing(false, [8]byte{}) }},
		{"SETTINGS (CVE-2019-9515)", nil, func(f *frames, _ int) { f.framer.WriteSettings() }},
		{"empty DATA (CVE-2019-9518)", func(f *frames) { open(f, 1) }, func(f *frames, _ int) { f.framer.WriteData(1, false, nil) }},
		{"PRIORITY (CVE-2019-9513)", nil, func(f *frames, i int) { f.framer.WritePriority(uint32(2*i+1), http2.PriorityParam{StreamDep: 0}) }},
		{"WINDOW_UPDATE of one byte", nil, func(f *frames, _ int) { f.framer.WriteWindowUpdate(0, 1) }},
		{"initial window up and down", nil, func(f *frames, i int) {
			f.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i % 2)})
		}},
		{"RST_STREAM of a closed stream", func(f *frames) { f.request(1, true); f.responseTo(1) }, func(f *frames, _ int) { f.framer.WriteRSTStream(1, http2.ErrCodeCancel) }},
		{"unknown frames", nil, func(f *frames, _ int) { f.framer.WriteRawFrame(0xee, 0, 0, nil) }},
		{"CONTINUATION without content (CVE-2024-24549)", func(f *frames) {
			f.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true})
		}, func(f *frames, _ int) { f.framer.WriteContinuation(1, false, nil) }},
		{"streams over the limit", func(f *frames) {
			for i := range uint32(250) {
				open(f, 2*i+1)
			}
		}, func(f *frames, i int) { open(f, uint32(501+2*i)) }},
		{"rapid reset (CVE-2023-44487)", nil, func(f *frames, i int) {
			f.request(uint32(2*i+1), true)
			f.framer.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel)
		}},
		{"made to reset by WINDOW_UPDATE (CVE-2025-8671)", nil, func(f *frames, i int) {
			f.request(uint32(2*i+1), true)
			f.framer.WriteWindowUpdate(uint32(2*i+1), 0)
		}},
		{"made to reset by DATA behind the end (CVE-2025-8671)", nil, func(f *frames, i int) {
			f.request(uint32(2*i+1), true)
			f.framer.WriteData(uint32(2*i+1), true, []byte("x"))
		}},
		{"malformed requests", nil, func(f *frames, i int) { f.request(uint32(2*i+1), true, "connection", "close") }},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := received.Load()
			f := m.frames(t)
			if row.begin != nil {
				row.begin(f)
			}
			ended := make(chan http2.ErrCode, 1)
			conn, framer := f.conn, f.framer // batch changes the fields of f
			go func() {
				code, ok := readGoAway(conn, framer)
				if !ok {
					code = http2.ErrCodeNo
				}
				ended <- code
			}()
			pause := time.Millisecond
			for i, n := 0, 0; ; n++ {
				if n == 300 {
					pause = testsupport.Patience // enough was sent; a slow machine has yet to read it
				}
				f.batch(func() {
					for range 100 {
						row.one(f, i)
						i++
					}
				})
				select {
				case code := <-ended:
					if code != http2.ErrCodeEnhanceYourCalm && code != http2.ErrCodeNo { // a reset may overtake the GOAWAY
						t.Errorf("ended with %v", code)
					}
					testsupport.AtMost(t, received.Load()-before, 1, "the SSP received %d requests")
					return
				case <-time.After(pause):
					testsupport.MustTrue(t, pause != testsupport.Patience, "the connection was not closed")
				}
			}
		})
	}
	m.await(0, inFlight, "")
}

// A block of a few bytes may stand for a header of megabytes. RFC 7541, section 7.3.
func TestHPACKBombIsRefused(t *testing.T) {
	m, received := counted(t)
	f := m.frames(t)
	f.block.Reset()
	for _, d := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "a"}, {":path", "/fill"}, {"x-bomb", strings.Repeat("b", 3900)}} {
		f.hpack.WriteField(hpack.HeaderField{Name: d[0], Value: d[1]})
	}
	block := append(bytes.Clone(f.block.Bytes()), bytes.Repeat([]byte{0x80 | 62}, 10_000)...)
	f.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true, EndHeaders: true, BlockFragment: block})
	wantGoAway(t, f.conn, f.framer, http2.ErrCodeEnhanceYourCalm)
	testsupport.Equal(t, received.Load(), 0, "the SSP received %d requests")
}

// A request whose end is malformed reaches no SSP: RFC 9113, section 8.1.1. Only its own stream is
// reset.
func TestRequestsThatEndMalformedAreNotForwarded(t *testing.T) {
	m, received := counted(t)
	trailers := func(f *frames, end bool, fields ...string) {
		f.block.Reset()
		for i := 0; i < len(fields); i += 2 {
			f.hpack.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
		}
		f.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: f.block.Bytes(), EndHeaders: true, EndStream: end})
	}
	for _, row := range []struct {
		name string
		end  func(f *frames)
	}{
		{"a pseudo-field in the trailers", func(f *frames) { trailers(f, true, ":path", "/x") }},
		{"a connection-specific field in the trailers", func(f *frames) { trailers(f, true, "connection", "x-t") }},
		{"a malformed name in the trailers", func(f *frames) { trailers(f, true, "X-T", "1") }},
		{"trailers that are not the end", func(f *frames) { trailers(f, false, "x-t", "1") }},
		{"surplus DATA", func(f *frames) { f.framer.WriteData(3, true, []byte("x")) }},
		{"too little DATA", func(f *frames) { trailers(f, true) }}, // 4 of 5 bytes
		{"a reset", func(f *frames) { f.framer.WriteRSTStream(3, http2.ErrCodeCancel) }},
		{"a window that overflows", func(f *frames) { f.framer.WriteWindowUpdate(3, 1<<31-1) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := m.frames(t)
			length := "4"
			if row.name == "too little DATA" {
				length = "5"
			}
			f.request(3, false, ":method", "POST", "content-length", length)
			f.framer.WriteData(3, false, []byte("four"))
			row.end(f)
			f.request(5, true)
			f.want(5, "200")
		})
	}
	testsupport.Equal(t, received.Load(), 8, "the SSP received %d requests, want one for each other stream")
	m.await(0, "adbuffer_buffered_bytes", "")
	m.awaitUploads(0)
}

// Streams that are reset in the same read as their HEADERS reach no SSP.
func TestStreamsThatAreResetAtOnceReachNoSSP(t *testing.T) {
	m, received := counted(t)
	f := m.frames(t)
	f.batch(func() {
		for i := range uint32(50) {
			f.request(2*i+1, true)
			f.framer.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
		}
		f.request(101, true)
	})
	f.want(101, "200")
	testsupport.Equal(t, received.Load(), 1, "the SSP received %d requests")
	m.await(50, "adbuffer_requests_total", "client_gone")
}

func TestPaddingBeyondThePayloadEndsTheConnection(t *testing.T) {
	m, _ := counted(t)
	for _, kind := range []http2.FrameType{http2.FrameData, http2.FrameHeaders} {
		f := m.frames(t)
		f.request(1, false, ":method", "POST")
		id := uint32(1)
		if kind == http2.FrameHeaders {
			id = 3
		}
		f.framer.WriteRawFrame(kind, http2.FlagDataPadded|http2.FlagHeadersEndHeaders, id, []byte{9, 1, 2})
		wantGoAway(t, f.conn, f.framer, http2.ErrCodeProtocol)
	}
}

// A client that never waits for credit sends as much as the stream's window, which is as large as the
// largest body.
func TestABodyOverItsLimitThatWaitsForNoCreditGets413(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.MaxBodyBytes, o.MaxUploads = 1<<20, 10 }), bids("a", "{}"))
	f := m.frames(t)
	f.request(1, false, ":method", "POST")
	for sent := 0; sent <= 1<<20; sent += 16384 {
		f.framer.WriteData(1, false, make([]byte, 16384))
	}
	f.want(1, "413")
}

// A client that sends no byte after its TLS handshake has idle_timeout.
func TestClientThatSendsNoPrefaceIsClosed(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.IdleTimeout = 50 * time.Millisecond }), bids("a", "{}"))
	c := m.dialTLS("h2")
	m.await(0, openClients, "")
	c.Close()
}
