package sspsim

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

func TestHTTP2BrokenRulesEndTheStreamOrTheConnection(t *testing.T) {
	good := []string{":method", "GET", ":scheme", "http", ":authority", "ssp", ":path", "/"}
	with := func(more ...string) []string { return append(append([]string(nil), good...), more...) }
	s := start(t, Options{Protocol: H2C, Behaviour: withFaults(Faults{Stall: Always})})
	for name, v := range map[string]struct {
		do     func(h *h2Client)
		stream http2.ErrCode // RST_STREAM of stream 1
		conn   http2.ErrCode // GOAWAY
	}{
		"no path":             {func(h *h2Client) { h.headers(1, true, good[:6]...) }, http2.ErrCodeProtocol, 0},
		"no authority":        {func(h *h2Client) { h.headers(1, true, ":method", "GET", ":scheme", "http", ":path", "/") }, http2.ErrCodeProtocol, 0},
		"path without slash":  {func(h *h2Client) { h.headers(1, true, append(with()[:7], "x")...) }, http2.ErrCodeProtocol, 0},
		"status in a request": {func(h *h2Client) { h.headers(1, true, ":status", "200") }, http2.ErrCodeProtocol, 0},
		"connection":          {func(h *h2Client) { h.headers(1, true, with("connection", "close")...) }, http2.ErrCodeProtocol, 0},
		"te":                  {func(h *h2Client) { h.headers(1, true, with("te", "gzip")...) }, http2.ErrCodeProtocol, 0},
		"transfer-encoding":   {func(h *h2Client) { h.headers(1, true, with("transfer-encoding", "chunked")...) }, http2.ErrCodeProtocol, 0},
		"other host":          {func(h *h2Client) { h.headers(1, true, with("host", "other")...) }, http2.ErrCodeProtocol, 0},
		"upper case":          {func(h *h2Client) { h.headers(1, true, with("X-A", "1")...) }, http2.ErrCodeProtocol, 0},
		"line end in value":   {func(h *h2Client) { h.headers(1, true, with("x", "a\r\nb")...) }, http2.ErrCodeProtocol, 0},
		"pseudo behind":       {func(h *h2Client) { h.headers(1, true, append([]string{"x", "1"}, good...)...) }, http2.ErrCodeProtocol, 0},
		"two lengths":         {func(h *h2Client) { h.headers(1, true, with("content-length", "0", "content-length", "0")...) }, http2.ErrCodeProtocol, 0},
		"length without data": {func(h *h2Client) { h.headers(1, true, with("content-length", "3")...) }, http2.ErrCodeProtocol, 0},
		"length over data": {func(h *h2Client) {
			h.headers(1, false, with("content-length", "3")...)
			h.must(h.framer.WriteData(1, true, []byte("ab")))
		}, http2.ErrCodeProtocol, 0},
		"head list too large": {func(h *h2Client) {
			var many []string
			for range 70 {
				many = append(many, "x", strings.Repeat("y", 1000))
			}
			h.block.Reset()
			for i := 0; i < len(many); i += 2 {
				h.must(h.enc.WriteField(hpack.HeaderField{Name: many[i], Value: many[i+1], Sensitive: true}))
			}
			block := h.block.Bytes()
			h.must(h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:16000], EndStream: true}))
			for block = block[16000:]; len(block) > 0; {
				n := min(len(block), 16000)
				h.must(h.framer.WriteContinuation(1, n == len(block), block[:n]))
				block = block[n:]
			}
		}, http2.ErrCodeProtocol, 0},
		"data on an ended stream": {func(h *h2Client) {
			h.headers(1, true, good...)
			h.must(h.framer.WriteData(1, true, []byte("x")))
		}, http2.ErrCodeStreamClosed, 0},
		"trailers that continue": {func(h *h2Client) {
			h.headers(1, false, good...)
			h.headers(1, false, "x", "1")
		}, http2.ErrCodeProtocol, 0},
		"stream window overrun": {func(h *h2Client) {
			h.headers(1, false, good...)
			h.must(h.framer.WriteWindowUpdate(1, 1<<31-1))
		}, http2.ErrCodeFlowControl, 0},

		"even stream":         {func(h *h2Client) { h.headers(2, true, good...) }, 0, http2.ErrCodeProtocol},
		"ids that fall":       {func(h *h2Client) { h.headers(5, true, good...); h.headers(3, true, good...) }, 0, http2.ErrCodeStreamClosed},
		"data on idle stream": {func(h *h2Client) { h.must(h.framer.WriteData(1, true, nil)) }, 0, http2.ErrCodeProtocol},
		"reset of idle":       {func(h *h2Client) { h.must(h.framer.WriteRSTStream(1, 0)) }, 0, http2.ErrCodeProtocol},
		"window of idle":      {func(h *h2Client) { h.must(h.framer.WriteWindowUpdate(1, 1)) }, 0, http2.ErrCodeProtocol},
		"window overrun":      {func(h *h2Client) { h.must(h.framer.WriteWindowUpdate(0, 1<<31-1)) }, 0, http2.ErrCodeFlowControl},
		"push promise": {func(h *h2Client) {
			h.must(h.framer.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, EndHeaders: true}))
		}, 0, http2.ErrCodeProtocol},
		"bad setting": {func(h *h2Client) {
			h.must(h.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1}))
		}, 0, http2.ErrCodeProtocol},
		"same setting twice": {func(h *h2Client) {
			h.must(h.framer.WriteSettings(http2.Setting{ID: 1, Val: 1}, http2.Setting{ID: 1, Val: 2}))
		}, 0, http2.ErrCodeProtocol},
		"frame too large": {func(h *h2Client) { h.must(h.framer.WriteRawFrame(http2.FramePing, 0, 0, make([]byte, 20_000))) }, 0, http2.ErrCodeFrameSize},
		"broken block": {func(h *h2Client) {
			h.must(h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff, 0xff}, EndHeaders: true}))
		}, 0, http2.ErrCodeCompression},
		"more than the stream's window": {func(h *h2Client) {
			h.headers(1, false, good...)
			for range 4 { // one byte more
				h.must(h.framer.WriteData(1, false, make([]byte, 16<<10)))
			}
		}, http2.ErrCodeFlowControl, 0},
		"more than the connection's window": {func(h *h2Client) {
			for id := uint32(1); id < 34; id += 2 {
				h.headers(id, false, good...)
				for range 5 {
					h.must(h.framer.WriteData(id, false, make([]byte, 12_800)))
				}
			}
		}, 0, http2.ErrCodeFlowControl},
	} {
		s.ResetCounters()
		h := dialH2C(t, s)
		v.do(h)
		switch f := h.next().(type) {
		case *http2.RSTStreamFrame:
			testsupport.True(t, f.ErrCode == v.stream && v.conn == 0 && f.StreamID == 1, "%s: %v", name, f)
			h.must(h.framer.WritePing(false, [8]byte{1})) // the connection stays usable
			for {
				if p, ok := h.frame().(*http2.PingFrame); ok && p.IsAck() {
					break
				}
			}
		case *http2.GoAwayFrame:
			testsupport.True(t, f.ErrCode == v.conn && v.stream == 0, "%s: %v", name, f)
			h.wantEnd()
		default:
			t.Errorf("%s: %v", name, f)
		}
		if n := s.Counters(); n.BadRequests != 1 || n.LastBadRequest == "" {
			t.Errorf("%s: counters %+v", name, n)
		}
	}
}

func TestHTTP2BodiesCrossInWindowsAndUpToTheLimit(t *testing.T) {
	s := start(t, Options{Protocol: H2C, Record: 1})
	transport := &http.Transport{Protocols: new(http.Protocols)} // an independent implementation
	transport.Protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: transport, Timeout: patience}
	defer client.CloseIdleConnections()
	body := strings.Repeat("0123", maxRequestBody/4)
	resp, err := client.Post(s.URL(), "text/plain", strings.NewReader(body))
	testsupport.NoError(t, err)
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 200 || string(s.Requests()[0].Body) != body {
		t.Errorf("%d, body of %d bytes", resp.StatusCode, len(s.Requests()[0].Body))
	}
	resp, err = client.Post(s.URL(), "text/plain", strings.NewReader(body+"1"))
	testsupport.NoError(t, err)
	resp.Body.Close()
	if n := s.Counters(); resp.StatusCode != 413 || n.BadRequests != 1 || n.Requests != 1 {
		t.Errorf("%d, counters %+v", resp.StatusCode, n)
	}
}

func TestHTTP2SpeaksOnlyBehindThePrefaceAndSettings(t *testing.T) {
	s := startH2C(t, Behaviour{})
	c := dial(t, s)
	c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if text, _ := c.rest(); text != "" {
		t.Errorf("HTTP/1 got %q", text)
	}
	s.await(t, "the bad preface", func(c Counters) bool { return c.BadRequests == 1 })
	h := &h2Client{rawClient: dial(t, s)}
	h.framer = http2.NewFramer(h.c, h.br)
	h.send(http2.ClientPreface)
	h.must(h.framer.WritePing(false, [8]byte{}))
	if f, ok := h.next().(*http2.GoAwayFrame); !ok || f.ErrCode != http2.ErrCodeProtocol {
		t.Errorf("got %v, want GOAWAY", f)
	}
}
