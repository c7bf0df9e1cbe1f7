package http2

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

func TestBadFramesCloseTheConnection(t *testing.T) {
	open, even, never, zero := uint32(1), uint32(2), uint32(99), uint32(0)
	u32 := func(n byte) []byte { return []byte{0, 0, 0, n} }
	padding := h2.FlagDataPadded
	for _, c := range []struct {
		name    string
		kind    h2.FrameType
		flags   h2.Flags
		id      uint32
		payload []byte
		code    h2.ErrCode
	}{
		{"DATA on no stream", h2.FrameData, 0, zero, []byte("x"), h2.ErrCodeProtocol},
		{"DATA on a stream that was never opened", h2.FrameData, 0, never, []byte("x"), h2.ErrCodeProtocol},
		{"DATA on a stream of the server's", h2.FrameData, 0, even, []byte("x"), h2.ErrCodeProtocol},
		{"DATA with more padding than payload", h2.FrameData, padding, open, []byte{3, 'a', 0}, h2.ErrCodeProtocol},
		{"DATA with padding and no length of it", h2.FrameData, padding, open, nil, h2.ErrCodeProtocol},
		{"HEADERS on no stream", h2.FrameHeaders, h2.FlagHeadersEndHeaders, zero, []byte{0x88}, h2.ErrCodeProtocol},
		{"HEADERS on a stream that was never opened", h2.FrameHeaders, h2.FlagHeadersEndHeaders, never, []byte{0x88}, h2.ErrCodeProtocol},
		{"HEADERS on a stream of the server's", h2.FrameHeaders, h2.FlagHeadersEndHeaders, even, []byte{0x88}, h2.ErrCodeProtocol},
		{"HEADERS with more padding than payload", h2.FrameHeaders, h2.FlagHeadersEndHeaders | padding, open, []byte{9, 0x88}, h2.ErrCodeProtocol},
		{"HEADERS with a priority cut off", h2.FrameHeaders, h2.FlagHeadersEndHeaders | h2.FlagHeadersPriority, open, u32(0), h2.ErrCodeFrameSize},
		{"HEADERS with an index beyond the table", h2.FrameHeaders, h2.FlagHeadersEndHeaders, open, []byte{0xfe}, h2.ErrCodeCompression},
		{"HEADERS with index 0", h2.FrameHeaders, h2.FlagHeadersEndHeaders, open, []byte{0x80}, h2.ErrCodeCompression},
		{"HEADERS with a field cut off", h2.FrameHeaders, h2.FlagHeadersEndHeaders, open, []byte{0x88, 0x40, 5, 'a'}, h2.ErrCodeCompression},
		{"HEADERS with a bad Huffman code", h2.FrameHeaders, h2.FlagHeadersEndHeaders, open, []byte{0x88, 0x0f, 0x0d, 0x81, 0x00}, h2.ErrCodeCompression},
		{"HEADERS with a table over our size", h2.FrameHeaders, h2.FlagHeadersEndHeaders, open, []byte{0x3f, 0xe2, 0x1f, 0x88}, h2.ErrCodeCompression},
		{"HEADERS with a table size behind a field", h2.FrameHeaders, h2.FlagHeadersEndHeaders, open, []byte{0x88, 0x20}, h2.ErrCodeCompression},
		{"HEADERS with an endless integer", h2.FrameHeaders, h2.FlagHeadersEndHeaders, open, bytes.Repeat([]byte{0xff}, 20), h2.ErrCodeCompression},
		{"CONTINUATION without HEADERS", h2.FrameContinuation, h2.FlagContinuationEndHeaders, open, []byte{0x88}, h2.ErrCodeProtocol},
		{"PUSH_PROMISE", h2.FramePushPromise, h2.FlagPushPromiseEndHeaders, open, append(u32(2), 0x82), h2.ErrCodeProtocol},
		{"PRIORITY on no stream", h2.FramePriority, 0, zero, make([]byte, 5), h2.ErrCodeProtocol},
		{"PRIORITY of a wrong size", h2.FramePriority, 0, open, make([]byte, 4), h2.ErrCodeFrameSize},
		{"RST_STREAM on no stream", h2.FrameRSTStream, 0, zero, u32(8), h2.ErrCodeProtocol},
		{"RST_STREAM on a stream that was never opened", h2.FrameRSTStream, 0, never, u32(8), h2.ErrCodeProtocol},
		{"RST_STREAM of a wrong size", h2.FrameRSTStream, 0, open, make([]byte, 3), h2.ErrCodeFrameSize},
		{"SETTINGS on a stream", h2.FrameSettings, 0, open, nil, h2.ErrCodeProtocol},
		{"SETTINGS of a wrong size", h2.FrameSettings, 0, zero, make([]byte, 5), h2.ErrCodeFrameSize},
		{"SETTINGS of push", h2.FrameSettings, 0, zero, settingsPayload(h2.Setting{ID: h2.SettingEnablePush, Val: 1}), h2.ErrCodeProtocol},
		{"SETTINGS of a window over 2^31-1", h2.FrameSettings, 0, zero, settingsPayload(h2.Setting{ID: h2.SettingInitialWindowSize, Val: 1 << 31}), h2.ErrCodeFlowControl},
		{"SETTINGS of frames too small", h2.FrameSettings, 0, zero, settingsPayload(h2.Setting{ID: h2.SettingMaxFrameSize, Val: 16383}), h2.ErrCodeProtocol},
		{"SETTINGS of frames too large", h2.FrameSettings, 0, zero, settingsPayload(h2.Setting{ID: h2.SettingMaxFrameSize, Val: 1 << 24}), h2.ErrCodeProtocol},
		{"SETTINGS with ACK and content", h2.FrameSettings, h2.FlagSettingsAck, zero, make([]byte, 6), h2.ErrCodeFrameSize},
		{"PING on a stream", h2.FramePing, 0, open, make([]byte, 8), h2.ErrCodeProtocol},
		{"PING of a wrong size", h2.FramePing, 0, zero, make([]byte, 7), h2.ErrCodeFrameSize},
		{"GOAWAY on a stream", h2.FrameGoAway, 0, open, make([]byte, 8), h2.ErrCodeProtocol},
		{"GOAWAY of a wrong size", h2.FrameGoAway, 0, zero, make([]byte, 7), h2.ErrCodeFrameSize},
		{"WINDOW_UPDATE of a wrong size", h2.FrameWindowUpdate, 0, zero, make([]byte, 5), h2.ErrCodeFrameSize},
		{"WINDOW_UPDATE by 0 of the connection", h2.FrameWindowUpdate, 0, zero, u32(0), h2.ErrCodeProtocol},
		{"WINDOW_UPDATE beyond 2^31-1 of the connection", h2.FrameWindowUpdate, 0, zero, []byte{0x7f, 0xff, 0xff, 0xff}, h2.ErrCodeFlowControl},
		{"WINDOW_UPDATE on a stream that was never opened", h2.FrameWindowUpdate, 0, never, u32(1), h2.ErrCodeProtocol},
		{"a frame over our size", h2.FrameData, 0, open, make([]byte, http2codec.MaxFrameSize+1), h2.ErrCodeFrameSize},
		{"an unknown frame over our size", 0x77, 0, open, make([]byte, http2codec.MaxFrameSize+1), h2.ErrCodeFrameSize},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := connect(t, testOptions())
			done := p.start(get("/"))
			p.request()
			p.do(p.fr.WriteRawFrame(c.kind, c.flags, c.id, c.payload))
			p.wantGoAway(c.code)
			wait(t, done).wantError(t, want{outcome: exchange.BadResponse, progress: exchange.MaybeProcessed, demote: true, detail: c.code.String()})
			p.wantClosed(exchange.ClosedError)
		})
	}
}

func TestFramesBetweenTheFragmentsOfAHeaderBlock(t *testing.T) {
	for name, send := range map[string]func(p *peer, id uint32) error{
		"PING":                           func(p *peer, id uint32) error { return p.fr.WritePing(false, [8]byte{}) },
		"DATA":                           func(p *peer, id uint32) error { return p.fr.WriteData(id, false, nil) },
		"an unknown frame":               func(p *peer, id uint32) error { return p.fr.WriteRawFrame(0x77, 0, 0, nil) },
		"HEADERS":                        func(p *peer, id uint32) error { p.head(id, true, ":status", "200"); return nil },
		"CONTINUATION of another stream": func(p *peer, id uint32) error { return p.fr.WriteContinuation(id+2, true, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, testOptions())
			done, id := p.begin(get("/"))
			p.do(p.fr.WriteHeaders(h2.HeadersFrameParam{StreamID: id, BlockFragment: p.encode(":status", "200")}))
			p.do(send(p, id))
			p.wantGoAway(h2.ErrCodeProtocol)
			wait(t, done)
		})
	}
}

func TestPeerMustBeginWithSettings(t *testing.T) {
	for name, send := range map[string]func(p *peer) error{
		"PING":         func(p *peer) error { return p.fr.WritePing(false, [8]byte{}) },
		"SETTINGS ACK": func(p *peer) error { return p.fr.WriteSettingsAck() },
		"HTTP/1": func(p *peer) error {
			_, err := io.WriteString(p.net, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := dialPeer(t, testOptions())
			p.readPreface()
			done := p.start(get("/"))
			p.request()
			p.do(send(p))
			detail := "SETTINGS"
			if name == "HTTP/1" {
				detail = "HTTP/1"
			}
			wait(t, done).wantError(t, want{outcome: exchange.BadResponse, progress: exchange.MaybeProcessed, demote: true, detail: detail})
			p.wantGoAway(h2.ErrCodeProtocol)
		})
	}
}

func TestBadWindowUpdatesOfAStreamResetOnlyIt(t *testing.T) {
	for increment, code := range map[uint32]h2.ErrCode{0: h2.ErrCodeProtocol, http2codec.MaxWindow: h2.ErrCodeFlowControl} {
		t.Run(fmt.Sprint(increment), func(t *testing.T) {
			p := connect(t, testOptions())
			done, id := p.begin(get("/"))
			p.do(p.fr.WriteWindowUpdate(id, increment))
			wait(t, done).wantError(t, want{outcome: exchange.BadResponse, progress: exchange.MaybeProcessed, demote: true, detail: "WINDOW_UPDATE"})
			p.wantReset(id, code)
			p.afterwards()
		})
	}
}

func TestInitialWindowThatMakesAWindowOverflow(t *testing.T) {
	p := connect(t, testOptions())
	done, id := p.begin(get("/"))
	p.do(p.fr.WriteWindowUpdate(id, http2codec.MaxWindow-http2codec.InitialWindow))
	p.do(p.fr.WriteSettings(h2.Setting{ID: h2.SettingInitialWindowSize, Val: http2codec.InitialWindow + 1}))
	p.wantGoAway(h2.ErrCodeFlowControl)
	wait(t, done)
}

func TestHarmlessFramesAreIgnored(t *testing.T) {
	p := connect(t, testOptions())
	done, id := p.begin(get("/"))
	p.do(p.fr.WriteRawFrame(0x77, 0xff, 0, []byte("unknown")))
	p.do(p.fr.WriteRawFrame(0x77, 0xff, id, nil))
	p.do(p.fr.WritePriority(id, h2.PriorityParam{StreamDep: 3, Weight: 5}))
	p.do(p.fr.WritePriority(99, h2.PriorityParam{Weight: 5})) // any stream
	p.do(p.fr.WriteSettingsAck())
	p.do(p.fr.WritePing(true, [8]byte{'?'}))
	p.do(p.fr.WriteRawFrame(h2.FrameData, 0xf6, id, nil)) // unknown flags, no END_STREAM
	p.head(id, false, ":status", "200")
	p.do(p.fr.WriteWindowUpdate(id, 1))
	p.data(id, true, "ok")
	if res := wait(t, done); res.err == nil {
		t.Error("DATA before the head went unnoticed") // so that the order above means something
	}
	p.afterwards()
}

func TestPingIsAcknowledgedWithItsContent(t *testing.T) {
	p := connect(t, testOptions())
	for _, data := range [][8]byte{{}, {1, 2, 3, 4, 5, 6, 7, 8}, resetPing} {
		p.do(p.fr.WritePing(false, data))
		f := next[*h2.PingFrame](p)
		testsupport.True(t, f.IsAck() && f.Data == data, "got %v %q, want %q", f, f.Data, data)
	}
}
