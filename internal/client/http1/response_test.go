package http1

import (
	"bytes"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"adbuffer/internal/test/testsupport"
)

func TestAResponseIsWrittenToFasthttpUnchanged(t *testing.T) {
	for _, c := range []struct {
		w    Response
		head int // 1 for a response to HEAD
		want string
	}{
		{Response{Status: 200, Body: []byte("{}"), Length: -1}, 0, "HTTP/1.1 200 OK|Content-Length: 2|*||{}"},
		{Response{Status: 200, Length: -1, Close: true}, 0, "HTTP/1.1 200 OK|Content-Length: 0|*|Connection: close||"},
		{Response{Status: 200, Length: 7}, 1, "HTTP/1.1 200 OK|Content-Length: 7|*||"},
		{Response{Status: 200, Length: -1}, 1, "HTTP/1.1 200 OK|*||"},
		{Response{Status: 204, Length: -1}, 0, "HTTP/1.1 204 No Content|*||"},
		{Response{Status: 302, Length: -1}, 0, "HTTP/1.1 302 Found|Content-Length: 0|*||"},
		{Response{Status: 304, Length: 7}, 0, "HTTP/1.1 304 Not Modified|*||"},
		{Response{Status: 599, Length: -1}, 0, "HTTP/1.1 599 Unknown Status Code|Content-Length: 0|*||"},
	} {
		const fields = "content-TYPE: text/html|Server: a|Date: Mon, 01 Jan 2001 00:00:00 GMT|Set-Cookie: a|set-cookie: a=b|x-SPELL:  1|Empty: "
		c.w.Fields = []byte(strings.ReplaceAll(fields+"|", "|", "\r\n"))
		got := writtenByFasthttp(t, &c.w, c.head)
		want := strings.Replace(c.want, "*", fields, 1)
		testsupport.True(t, strings.ReplaceAll(got, "\r\n", "|") == want, "%q, want %q", got, want)
	}
}

// writtenByFasthttp returns the bytes that the proxy's server writes for a response.
func writtenByFasthttp(t *testing.T, w *Response, head int) string {
	t.Helper()
	s := New(nil, Options{MaxHeaderBytes: 1000}, zap.NewNop()).http
	s.Handler = func(ctx *fasthttp.RequestCtx) { w.writeTo(&ctx.Response) }
	c := &scriptedConn{in: strings.NewReader(constantHeads[0][head])}
	testsupport.NoError(t, s.ServeConn(c))
	return c.out.String()
}

// The memory of a response's header is kept for the next response. It must not grow with the number of fields, or
// with the largest field so far at each position.
func TestMemoryOfAResponseHeaderFollowsItsBytes(t *testing.T) {
	const size = 16 << 10
	for name, lines := range map[string]func(i int) string{
		"tiny fields": func(int) string { return strings.Repeat("a: \r\n", size/5) },
		"a large field that moves": func(i int) string {
			return strings.Repeat("a: \r\n", i) + "b: " + strings.Repeat("x", size-1024)
		},
		"cookies, one large, it moves": func(i int) string {
			return strings.Repeat("set-cookie: a\r\n", i) + "set-cookie: " + strings.Repeat("x", size-1024)
		},
	} {
		var h fasthttp.ResponseHeader
		kept := keptBy(func() {
			for i := range 256 {
				h.Reset()
				setFields(&h, []byte(lines(i)))
			}
		})
		testsupport.True(t, kept <= 6*size, "%s: %d bytes are kept after headers of %d", name, kept, size)
		runtime.KeepAlive(&h)
	}
}

// keptBy returns how many bytes f leaves on the heap.
func keptBy(f func()) int64 {
	inUse := func() int64 {
		runtime.GC()
		runtime.GC() // a sync.Pool releases its objects after two collections
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := inUse()
	f()
	return inUse() - before
}

// scriptedConn is a client that sends in and closes.
type scriptedConn struct {
	net.Conn // nil
	in       *strings.Reader
	out      bytes.Buffer
}

func (c *scriptedConn) Read(b []byte) (int, error)  { return c.in.Read(b) }
func (c *scriptedConn) Write(b []byte) (int, error) { return c.out.Write(b) }
func (c *scriptedConn) Close() error                { return nil }
func (c *scriptedConn) LocalAddr() net.Addr         { return &net.TCPAddr{} }
func (c *scriptedConn) RemoteAddr() net.Addr        { return &net.TCPAddr{} }
