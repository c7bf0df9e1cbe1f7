package proxy_test

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

// A request that HTTP/2 can carry and HTTP/1 cannot is refused before any SSP gets it. adbuffer
// never changes its meaning.
func TestNoRequestIsSmuggledThroughHTTP2(t *testing.T) {
	var received atomic.Int64
	m := newModeProxy(t, route.Single, overTLS, bidder{name: "a", handler: func(http.ResponseWriter, *http.Request) { received.Add(1) }})
	for _, row := range []struct {
		name   string
		fields []string
		body   string
		status string // "" = the stream or the connection is reset
	}{
		{"CRLF in a value", []string{"x-a", "1\r\nX-Forwarded-For: 1.2.3.4"}, "", ""},
		{"DEL in a value", []string{"x-a", "a\x7fb"}, "", ""},
		{"LF in a value", []string{"x-a", "1\nb: c"}, "", ""},
		{"CR in a value", []string{"x-a", "1\rb"}, "", ""},
		{"NUL in a value", []string{"x-a", "1\x00b"}, "", ""},
		{"a request in a value", []string{"x-a", "1\r\n\r\nGET /fill HTTP/1.1\r\nHost: b\r\n\r\n"}, "", ""},
		{"CRLF in a name", []string{"x-a: 1\r\nx-b", "1"}, "", ""},
		{"colon in a name", []string{"x-a:", "1"}, "", ""},
		{"blank in a name", []string{"x a", "1"}, "", ""},
		{"capital in a name", []string{"X-A", "1"}, "", ""},
		{"empty name", []string{"", "1"}, "", ""},
		{"blank before a value", []string{"x-a", " 1"}, "", ""},
		{"blank behind a value", []string{"x-a", "1\t"}, "", ""},
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
		{"authority without a host", []string{":authority", ":443"}, "", "400"},
		{"authority with a port that is none", []string{":authority", "a:asd"}, "", "400"},
		{"authority with half an address", []string{":authority", "[::1"}, "", "400"},
		{"empty authority", []string{":authority", ""}, "", ""},
		{"empty authority and host", []string{":authority", "", "host", ""}, "", ""},
		{"empty host", []string{":authority", "absent", "host", ""}, "", ""},
		{"host that is none", []string{":authority", "absent", "host", "a:asd"}, "", "400"},
		{"another port in host", []string{"host", "adbuffer.test:80"}, "", ""},
		{"another host", []string{"host", "other.example"}, "", ""},
		{"two hosts", []string{"host", "adbuffer.test", "host", "adbuffer.test"}, "", ""},
		{"connection", []string{"connection", "close"}, "", ""},
		{"connection names a field", []string{"connection", "x-a"}, "", ""},
		{"keep-alive", []string{"keep-alive", "timeout=5"}, "", ""},
		{"proxy-connection", []string{"proxy-connection", "close"}, "", ""},
		{"upgrade", []string{"upgrade", "h2c"}, "", ""},
		{"transfer-encoding", []string{":method", "POST", "transfer-encoding", "chunked"}, "0\r\n\r\nGET /fill HTTP/1.1\r\nHost: a\r\n\r\n", ""},
		{"te", []string{"te", "gzip"}, "", ""},
		{"content-length without a body", []string{":method", "POST", "content-length", "5"}, "", ""},
		{"content-length too small", []string{":method", "POST", "content-length", "4"}, "12345", ""},
		{"content-length too large", []string{":method", "POST", "content-length", "6"}, "12345", ""},
		{"two content-lengths", []string{":method", "POST", "content-length", "5", "content-length", "5"}, "12345", ""},
		{"content-length with a sign", []string{":method", "POST", "content-length", "+5"}, "12345", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := m.frames(t)
			f.request(1, row.body == "", row.fields...)
			if row.body != "" {
				f.framer.WriteData(1, true, []byte(row.body))
			}
			// A wrong length of a body may show only when the body is read. Then the stream is
			// reset or the request is refused, whichever comes first.
			if a := f.responseTo(1); a.reset != (row.status == "") && a.status != "400" || a.status != "" && row.status != "" && a.status != row.status {
				t.Errorf("%+v, want status %q", a, row.status)
			}
		})
	}
	testsupport.Equal(t, received.Load(), 0, "the SSP received %d requests")
	f := m.frames(t)
	for i, fields := range [][]string{
		{"te", "trailers", "cookie", "a=1", "cookie", "b=2"}, {"x-a", "\xff\xfe"}, {"x-a", "a\tb"}, {"x-a", ""}, {"host", "adbuffer.test"}, {":path", "/fill?\xff"},
		{"host", "AdBuffer.Test"}, {"host", "adbuffer.test:443"}, {"host", "adbuffer.test."}, {"host", "ADBUFFER.test.:0443"}, {"host", "adbuffer.test:"},
		{":authority", "[2001:db8::1]:443", "host", "[2001:DB8::1]"}, {":authority", "absent", "host", "a"},
	} {
		id := uint32(2*i + 1)
		f.request(id, true, fields...)
		a := f.responseTo(id)
		testsupport.True(t, a.status == "200" && a.source == "ssp/a", "a well-formed request with %q: %+v", fields, a)
	}
	testsupport.True(t, m.seriesOf(clientErrors, "http2", "violation") != 0, "no error of HTTP/2 is counted")
}

func TestTrailersOfRequestsAreIgnored(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLS, bidder{name: "a", handler: func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-T")
		w.Write(append(b, r.Trailer.Get("X-T")+r.Header.Get("X-T")+r.Header.Get("Trailer")...))
		w.Header().Set("X-T", "1")
	}})
	f := m.frames(t)
	f.request(1, false, ":method", "POST", "trailer", "x-t")
	f.framer.WriteData(1, false, []byte("body"))
	f.block.Reset()
	f.hpack.WriteField(hpack.HeaderField{Name: "x-t", Value: "trailing"})
	f.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.block.Bytes(), EndStream: true, EndHeaders: true})
	a := f.responseTo(1)
	testsupport.True(t, a.status == "200" && a.body == "body", "%+v, want the body alone", a)
}

// A client may continue to send its body after an early response. That is no violation.
func TestBytesOfARefusedBodyAreNoErrorOfHTTP2(t *testing.T) {
	m := newModeProxy(t, route.Single, overTLSAnd(func(o *proxy.Options) { o.MaxBodyBytes = 10 }), bids("a", "{}"))
	f := m.frames(t)
	f.request(1, false, ":method", "POST", "content-length", "1000")
	f.want(1, "413")
	f.framer.WriteData(1, false, make([]byte, 500))
	f.request(3, true)
	f.want(3, "200")
	testsupport.Equal(t, m.seriesOf(clientErrors, "http2", "violation"), 0, "%v errors of HTTP/2")
	f.framer.WriteWindowUpdate(5, 0)
	m.awaitError(1, "http2", "violation")
}
