package proxy_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"adbuffer/internal/proxy"
	"adbuffer/internal/route"
)

// frames is a client of HTTP/2 that says what the test wants, allowed or not.
type frames struct {
	t      *testing.T
	conn   *tls.Conn
	framer *http2.Framer
	block  bytes.Buffer
	hpack  *hpack.Encoder
}

func (m *modeProxy) frames(t *testing.T, settings ...http2.Setting) *frames {
	t.Helper()
	f := &frames{t: t, conn: m.dialTLS("h2")}
	if got := f.conn.ConnectionState().NegotiatedProtocol; got != "h2" {
		t.Fatalf("ALPN: %q", got)
	}
	f.framer = http2.NewFramer(f.conn, f.conn)
	f.framer.AllowIllegalWrites = true
	f.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.hpack = hpack.NewEncoder(&f.block)
	io.WriteString(f.conn, http2.ClientPreface) //nolint:errcheck // reads tell
	f.framer.WriteSettings(settings...)         //nolint:errcheck // as above
	return f
}

// request opens a stream. fields are name, value, name, value; the first ones
// may be pseudo-fields. A method, scheme, authority and path that are not among
// them are added.
func (f *frames) request(id uint32, end bool, fields ...string) {
	f.t.Helper()
	f.block.Reset()
	given := strings.Join(fields, "\x00")
	for _, d := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "adbuffer.test"}, {":path", "/fill"}} {
		if !strings.Contains(given, d[0]) {
			fields = append([]string{d[0], d[1]}, fields...)
		}
	}
	for i := 0; i < len(fields); i += 2 {
		if fields[i+1] != "absent" {
			f.hpack.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) //nolint:errcheck // a buffer
		}
	}
	block := f.block.Bytes()
	first := block[:min(len(block), 16<<10)]
	f.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndStream: end, EndHeaders: len(first) == len(block)}) //nolint:errcheck // reads tell
	for block = block[len(first):]; len(block) > 0; {
		n := min(len(block), 16<<10)
		f.framer.WriteContinuation(id, n == len(block), block[:n]) //nolint:errcheck // as above
		block = block[n:]
	}
}

// answer is how a stream ended.
type answer struct {
	status, source string
	body           string
	reset          bool // instead, or GOAWAY, or the end of the connection
}

// answerTo reads until a stream has ended.
func (f *frames) answerTo(id uint32) (a answer) {
	f.t.Helper()
	f.conn.SetReadDeadline(time.Now().Add(20 * time.Second)) //nolint:errcheck // the read tells
	for {
		frame, err := f.framer.ReadFrame()
		if err != nil {
			a.reset = true
			return a
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				f.framer.WriteSettingsAck() //nolint:errcheck // the next read tells
			}
			continue
		case *http2.GoAwayFrame:
			if frame.ErrCode != http2.ErrCodeNo {
				a.reset = true
				return a
			}
		}
		if frame.Header().StreamID != id {
			continue
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			a.status = frame.PseudoValue("status")
			for _, field := range frame.RegularFields() {
				if field.Name == "x-adbuffer-source" {
					a.source = field.Value
				}
			}
			if frame.StreamEnded() {
				return a
			}
		case *http2.DataFrame:
			a.body += string(frame.Data())
			if frame.StreamEnded() {
				return a
			}
		case *http2.RSTStreamFrame:
			if a.status == "" || frame.ErrCode != http2.ErrCodeNo {
				a.reset = true
			}
			return a
		}
	}
}

// Nothing that HTTP/2 can carry and HTTP/1 cannot becomes something else on its
// way: it is refused before any SSP hears of it.
func TestNoRequestIsSmuggledThroughHTTP2(t *testing.T) {
	var asked atomic.Int64
	m := newModeProxy(t, route.Single, overTLS, bidder{name: "a", handler: func(http.ResponseWriter, *http.Request) { asked.Add(1) }})
	for _, row := range []struct {
		name   string
		fields []string
		body   string
		status string // "" = the stream or the connection is reset
	}{
		{"CRLF in a value", []string{"x-a", "1\r\nX-Forwarded-For: 1.2.3.4"}, "", ""},
		{"LF in a value", []string{"x-a", "1\nb: c"}, "", ""},
		{"CR in a value", []string{"x-a", "1\rb"}, "", ""},
		{"NUL in a value", []string{"x-a", "1\x00b"}, "", ""},
		{"a request in a value", []string{"x-a", "1\r\n\r\nGET /fill HTTP/1.1\r\nHost: b\r\n\r\n"}, "", ""},
		{"CRLF in a name", []string{"x-a: 1\r\nx-b", "1"}, "", ""},
		{"colon in a name", []string{"x-a:", "1"}, "", ""},
		{"blank in a name", []string{"x a", "1"}, "", ""},
		{"capital in a name", []string{"X-A", "1"}, "", ""},
		{"empty name", []string{"", "1"}, "", ""},
		{"blank before a value", []string{"x-a", " 1"}, "", "400"},
		{"blank behind a value", []string{"x-a", "1\t"}, "", "400"},
		{"pseudo-field behind others", []string{":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/fill", "x-a", "1", ":path", "/other"}, "", ""},
		{"two paths", []string{":path", "/fill", ":path", "/fill"}, "", ""},
		{"unknown pseudo-field", []string{":fragment", "x"}, "", ""},
		{"status in a request", []string{":status", "200"}, "", ""},
		{"no method", []string{":method", "absent"}, "", ""},
		{"no path", []string{":path", "absent"}, "", ""},
		{"empty path", []string{":path", ""}, "", ""},
		{"no scheme", []string{":scheme", "absent"}, "", ""},
		{"another scheme", []string{":scheme", "gopher"}, "", ""},
		{"no authority", []string{":authority", "absent"}, "", "400"},
		{"path with a blank", []string{":path", "/fill x"}, "", "400"},
		{"path with a request", []string{":path", "/fill HTTP/1.1\r\nHost: b\r\n\r\nGET /x"}, "", ""},
		{"path with a fragment", []string{":path", "/fill#x"}, "", "400"},
		{"absolute path", []string{":path", "https://other.example/fill"}, "", ""},
		{"path without a slash", []string{":path", "fill"}, "", ""},
		{"asterisk", []string{":path", "*"}, "", "400"},
		{"method with a blank", []string{":method", "GET /fill HTTP/1.1"}, "", "405"},
		{"method in lower case", []string{":method", "get"}, "", "405"},
		{"CONNECT", []string{":method", "CONNECT", ":path", "absent", ":scheme", "absent"}, "", "400"},
		{"authority with a path", []string{":authority", "a/b"}, "", ""},
		{"authority with CRLF", []string{":authority", "a\r\nx-b: 1"}, "", ""},
		{"authority with userinfo", []string{":authority", "me@a"}, "", ""},
		{"another host", []string{"host", "other.example"}, "", ""},
		{"two hosts", []string{"host", "adbuffer.test", "host", "adbuffer.test"}, "", ""},
		{"connection", []string{"connection", "close"}, "", "400"},
		{"connection names a field", []string{"connection", "x-a"}, "", "400"},
		{"keep-alive", []string{"keep-alive", "timeout=5"}, "", "400"},
		{"proxy-connection", []string{"proxy-connection", "close"}, "", "400"},
		{"upgrade", []string{"upgrade", "h2c"}, "", "400"},
		{"transfer-encoding", []string{":method", "POST", "transfer-encoding", "chunked"}, "0\r\n\r\nGET /fill HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
		{"te", []string{"te", "gzip"}, "", "400"},
		{"content-length without a body", []string{":method", "POST", "content-length", "5"}, "", "400"},
		{"content-length too small", []string{":method", "POST", "content-length", "4"}, "12345", ""},
		{"content-length too large", []string{":method", "POST", "content-length", "6"}, "12345", "400"},
		{"two content-lengths", []string{":method", "POST", "content-length", "5", "content-length", "5"}, "12345", "400"},
		{"content-length with a sign", []string{":method", "POST", "content-length", "+5"}, "12345", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := m.frames(t)
			f.request(1, row.body == "", row.fields...)
			if row.body != "" {
				f.framer.WriteData(1, true, []byte(row.body)) //nolint:errcheck // the answer tells
			}
			// Where the mismatch of a body shows only once it is read, either may
			// come first: the refusal of the stream, or ours of the request.
			if a := f.answerTo(1); a.reset != (row.status == "") && a.status != "400" || a.status != "" && row.status != "" && a.status != row.status {
				t.Errorf("%+v, want status %q", a, row.status)
			}
		})
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the SSP was asked %d times", n)
	}
	f := m.frames(t)
	f.request(1, true, "te", "trailers", "cookie", "a=1", "cookie", "b=2")
	if a := f.answerTo(1); a.status != "200" || a.source != "ssp/a" {
		t.Errorf("a well-formed request: %+v", a)
	}
	if m.series("adbuffer_client_http2_errors_total", "") == 0 {
		t.Error("no error of HTTP/2 is counted")
	}
}

func TestTrailersOfRequestsAreIgnored(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLS, bidder{name: "a", handler: func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-T")
		w.Write(append(b, r.Trailer.Get("X-T")+r.Header.Get("X-T")+r.Header.Get("Trailer")...)) //nolint:errcheck // the proxy tells
		w.Header().Set("X-T", "1")
	}})
	f := m.frames(t)
	f.request(1, false, ":method", "POST", "trailer", "x-t")
	f.framer.WriteData(1, false, []byte("body")) //nolint:errcheck // the answer tells
	f.block.Reset()
	f.hpack.WriteField(hpack.HeaderField{Name: "x-t", Value: "trailing"})                                                          //nolint:errcheck // a buffer
	f.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.block.Bytes(), EndStream: true, EndHeaders: true}) //nolint:errcheck // the answer tells
	if a := f.answerTo(1); a.status != "200" || a.body != "body" {
		t.Errorf("%+v, want the body alone", a)
	}
}

func TestStreamThatIsResetMakesTheClientGone(t *testing.T) {
	asked, second := make(chan struct{}), make(chan struct{})
	m := newModeProxy(t, route.Waterfall, overTLS,
		bidder{name: "a", handler: func(w http.ResponseWriter, _ *http.Request) {
			close(asked)
			<-second
			w.WriteHeader(204)
		}}, bids("b", "{}"))
	f := m.frames(t)
	f.request(1, true)
	<-asked
	f.framer.WriteRSTStream(1, http2.ErrCodeCancel) //nolint:errcheck // the counter tells
	f.framer.WritePing(false, [8]byte{1})           //nolint:errcheck // as above
	for {
		frame, err := f.framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := frame.(*http2.PingFrame); ok && p.IsAck() {
			break // so the reset has been seen
		}
	}
	close(second)
	for m.counted("adbuffer_requests_total", "client_gone") != 1 {
		if m.counted("adbuffer_requests_total", "fill") > 0 {
			t.Fatal("the second SSP was asked for a stream that was reset")
		}
		time.Sleep(time.Millisecond)
	}
	m.await(1, openClients, "") // the connection goes on
}

// Whoever opens no window holds memory that is bounded, and only for so long:
// the answer counts against max_buffered_bytes until write_timeout resets the
// stream.
func TestSlowReaderHoldsBoundedMemoryForBoundedTime(t *testing.T) {
	big := strings.Repeat("x", 100_000)
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) {
		o.WriteTimeout, o.MaxBufferedBytes = time.Second, 350_000
	}), bids("a", big))
	f := m.frames(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
	const n = 20
	for i := range uint32(n) {
		f.request(2*i+1, true)
	}
	m.await(100_000*3, "adbuffer_buffered_bytes", "") // the others were refused
	m.await(0, "adbuffer_buffered_bytes", "")
	if got := m.counted("adbuffer_requests_total", "overloaded"); got < 1 || got > n-3 {
		t.Errorf("%v requests were refused", got)
	}
	fills := 0
	for range n {
		for {
			frame, err := f.framer.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if r, ok := frame.(*http2.RSTStreamFrame); ok && r.ErrCode != http2.ErrCodeNo {
				fills++
				break
			}
		}
	}
	if fills != n {
		t.Errorf("%d streams were reset", fills)
	}
	f.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}) //nolint:errcheck // the answer tells
	f.framer.WriteWindowUpdate(0, 1<<20)                                                    //nolint:errcheck // as above
	f.request(2*n+1, true)
	if a := f.answerTo(2*n + 1); a.status != "200" || len(a.body) != len(big) {
		t.Errorf("afterwards: %s of %d bytes", a.status, len(a.body))
	}
}

// A client that does not read at all is closed when its socket has been full
// for write_timeout.
func TestClientThatReadsNothingIsClosed(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.WriteTimeout, o.MaxBufferedBytes = time.Second, 1<<30 }), bids("a", strings.Repeat("x", 900_000)))
	f := m.frames(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	f.conn.NetConn().(*net.TCPConn).SetReadBuffer(4096) //nolint:errcheck // it is full the sooner
	f.framer.WriteWindowUpdate(0, 1<<30)                //nolint:errcheck // the gauge tells
	for i := range uint32(30) {
		f.request(2*i+1, true)
	}
	m.await(0, openClients, "")
	m.await(0, "adbuffer_buffered_bytes", "")
}

// A body that stops coming is given up after read_timeout.
func TestBodyThatStopsComingOverHTTP2IsATimeout(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.ReadTimeout = 50 * time.Millisecond }), bids("a", "{}"))
	f := m.frames(t)
	f.request(1, false, ":method", "POST", "content-length", "10")
	f.framer.WriteData(1, false, []byte("half")) //nolint:errcheck // the answer tells
	if a := f.answerTo(1); a.status != "408" || a.source != "proxy/bad_request" {
		t.Errorf("%+v, want 408", a)
	}
	f.request(3, true)
	if a := f.answerTo(3); a.status != "200" {
		t.Errorf("the next stream: %+v", a)
	}
}

// Streams that are reset as soon as they are opened (CVE-2023-44487) neither
// start more handlers than there may be streams, nor go on for ever.
func TestRapidResetIsEnded(t *testing.T) {
	release := make(chan struct{})
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.MaxInFlight = 10_000 }),
		bidder{name: "a", handler: func(http.ResponseWriter, *http.Request) { <-release }})
	defer close(release)
	before := runtime.NumGoroutine()
	f := m.frames(t)
	f.framer.ReadFrame() //nolint:errcheck // their settings
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if frame, err := f.framer.ReadFrame(); err != nil {
				return
			} else if g, ok := frame.(*http2.GoAwayFrame); ok && g.ErrCode == http2.ErrCodeEnhanceYourCalm {
				return
			}
		}
	}()
	most := 0
	for i := uint32(1); ; i += 2 {
		f.request(i, true)
		if err := f.framer.WriteRSTStream(i, http2.ErrCodeCancel); err != nil {
			break
		}
		most = max(most, runtime.NumGoroutine()-before)
		select {
		case <-ended:
		default:
			if i < 100_000 {
				continue
			}
			t.Error("it may go on for ever")
		}
		break
	}
	if most > 1000 {
		t.Errorf("%d goroutines", most)
	}
}

// Over the limit of concurrent streams a stream is refused, not the connection.
func TestMoreStreamsThanMayBeOpenAreRefused(t *testing.T) {
	release := make(chan struct{})
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.MaxInFlight = 10_000 }),
		bidder{name: "a", handler: func(w http.ResponseWriter, _ *http.Request) { <-release }})
	f := m.frames(t)
	var limit uint32
	for limit == 0 {
		frame, err := f.framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := frame.(*http2.SettingsFrame); ok && !s.IsAck() {
			limit, _ = s.Value(http2.SettingMaxConcurrentStreams)
		}
	}
	f.framer.WriteSettingsAck() //nolint:errcheck // reads tell
	for i := range limit + 1 {
		f.request(2*i+1, true)
	}
	a := f.answerTo(2*limit + 1)
	if limit != 250 || !a.reset {
		t.Errorf("of %d streams one more: %+v", limit, a)
	}
	close(release)
	for m.p.InFlight() > 0 {
		time.Sleep(time.Millisecond)
	}
	m.await(1, openClients, "")
}

// A head of any size ends: by our answer, the server's, or the connection's end.
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
		{"over what HTTP/2's server takes", 1500, 30, "431", ""},
		{"one field over that", 50 << 10, 1, "", ""},
	} {
		f := m.frames(t)
		var fields []string
		for range row.times {
			fields = append(fields, "x-long", strings.Repeat("x", row.value))
		}
		f.request(1, true, fields...)
		if a := f.answerTo(1); a.status != row.status || a.source != row.source {
			t.Errorf("%s: %+v, want %s of %s", row.name, a, row.status, row.source)
		}
	}
	// CONTINUATION without end.
	f := m.frames(t)
	f.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true}) //nolint:errcheck // the loop tells
	block := bytes.Repeat([]byte{0x00, 1, 'a', 1, 'b'}, 3000)                    // literals
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if _, err := f.framer.ReadFrame(); err != nil {
				return
			}
		}
	}()
	for sent := 0; ; sent += len(block) {
		if err := f.framer.WriteContinuation(1, false, block); err != nil {
			break
		}
		select {
		case <-ended:
		default:
			if sent < 10<<20 {
				continue
			}
			t.Error("CONTINUATION may go on for ever")
		}
		break
	}
}

func TestIdleHTTP2ConnectionIsClosedWithGOAWAY(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.IdleTimeout = 20 * time.Millisecond }), bids("a", "{}"))
	f := m.frames(t)
	f.request(1, true)
	if a := f.answerTo(1); a.status != "200" {
		t.Errorf("%+v", a)
	}
	for {
		frame, err := f.framer.ReadFrame()
		if err != nil {
			t.Fatalf("no GOAWAY: %v", err)
		}
		if g, ok := frame.(*http2.GoAwayFrame); ok {
			if g.ErrCode != http2.ErrCodeNo {
				t.Errorf("GOAWAY: %v", g.ErrCode)
			}
			break
		}
	}
	m.await(0, openClients, "")
}
