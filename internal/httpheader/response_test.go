package httpheader

import (
	"adbuffer/internal/testsupport"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/valyala/fasthttp"
)

// serve runs s on a real socket until the test ends.
func serve(t *testing.T, s *fasthttp.Server) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// exchange sends raw and returns all bytes until the server closes.
func exchange(t *testing.T, addr, raw string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte(raw)); err != nil {
		t.Fatal(err)
	}
	response, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("%q: %v after %q", raw, err, response)
	}
	return string(response)
}

// responseTo returns the header and the body that a client of adbuffer receives for an SSP's
// response with the given status, lines and body. The header comes line by line and without its
// last field (the server's Connection: close).
func responseTo(t *testing.T, p *Policy, status int, body string, lines ...string) (head []string, _ string) {
	t.Helper()
	addr := serve(t, &fasthttp.Server{
		NoDefaultDate:                 true,
		NoDefaultServerHeader:         true,
		DisableHeaderNamesNormalizing: true,
		Handler: func(ctx *fasthttp.RequestCtx) {
			p.CopyResponse(&ctx.Response.Header, status, []byte(strings.Join(append(lines, ""), "\r\n")))
			ctx.Response.SetBodyString(body)
		},
	})
	response := exchange(t, addr, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	top, rest, found := strings.Cut(response, "\r\n\r\n")
	top, ended := strings.CutSuffix(top, "\r\nConnection: close")
	if !found || !ended {
		t.Fatalf("response is %q", response)
	}
	return strings.Split(top, "\r\n"), rest
}

const someDate = "Date: Mon, 01 Jan 2001 00:00:00 GMT"

func TestResponsesKeepTheirEndToEndFields(t *testing.T) {
	got, body := responseTo(t, NewPolicy(PolicyOptions{}), 200, "{}",
		"server: openx/1", someDate, "content-TYPE: application/json", "Content-Length: 999", "x-lower-case: 1", "X-UPPER: 2",
		"content-encoding: gzip", "X-A: 1", "Cache-Control: no-store", "X-A: 2", "Empty:", "Location: /there", "Retry-After: 3", "x_a: 4")
	want := []string{"HTTP/1.1 200 OK", "Server: openx/1", "Content-Type: application/json", "Content-Encoding: gzip", "Content-Length: 2",
		someDate, "x-lower-case: 1", "X-UPPER: 2", "X-A: 1", "Cache-Control: no-store", "X-A: 2", "Empty: ", "Location: /there", "Retry-After: 3", "x_a: 4"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("head (-want +got):\n%s", diff)
	}
	if body != "{}" {
		t.Errorf("body is %q", body)
	}
}

func TestResponsesLeaveHopByHopAndGuardedFieldsBehind(t *testing.T) {
	left := []string{"Connection: close, X-Hop", "connection: x-more,, date", "Keep-Alive: timeout=5", "Proxy-Connection: close", "TE: trailers",
		"Trailer: X-A", "Transfer-Encoding: chunked", "Upgrade: h2c", "Content-Length: 5", "X-Adbuffer-Source: ssp/evil", "x_adbuffer_source: a",
		"X-Hop: 1", "X-MORE: 2", someDate,
		"Set-Cookie: a=b", "set-cookie2: c=d", "Alt-Svc: h3=\":443\"", "Strict-Transport-Security: max-age=1", "Clear-Site-Data: \"*\"", "Proxy-Authenticate: Basic"}
	got, _ := responseTo(t, NewPolicy(PolicyOptions{}), 404, "", append(left, "X-A: 1")...)
	if len(got) != 4 || got[0] != "HTTP/1.1 404 Not Found" || got[1] != "Content-Length: 0" || got[2] != "X-A: 1" {
		t.Fatalf("head is %q", got)
	}
	date, found := strings.CutPrefix(got[3], "Date: ")
	if _, err := http.ParseTime(date); !found || err != nil || got[3] == someDate {
		t.Errorf("a response whose Date is hop-by-hop gets %q", got[3])
	}
}

func TestResponsesKeepWhatIsPassed(t *testing.T) {
	p := NewPolicy(PolicyOptions{Pass: []string{"SET-Cookie", "Alt-Svc", "strict-transport-security", "Clear-Site-Data"}})
	got, _ := responseTo(t, p, 200, "", someDate, "set-cookie: a=b; Path=/", "Set-Cookie: a=c; HttpOnly", "alt-svc: clear", "Set-Cookie: ,;",
		"Strict-Transport-Security: max-age=1", "Clear-Site-Data: \"*\"", "Set_Cookie: x")
	want := []string{"HTTP/1.1 200 OK", "Content-Length: 0", someDate, "set-cookie: a=b; Path=/", "Set-Cookie: a=c; HttpOnly", "alt-svc: clear",
		"Set-Cookie: ,;", "Strict-Transport-Security: max-age=1", "Clear-Site-Data: \"*\""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("head (-want +got):\n%s", diff)
	}
}

func TestResponsesWithoutContentTypeGetNone(t *testing.T) {
	got, body := responseTo(t, NewPolicy(PolicyOptions{}), 200, "<VAST/>", someDate)
	want := []string{"HTTP/1.1 200 OK", "Content-Length: 7", someDate}
	if diff := cmp.Diff(want, got); diff != "" || body != "<VAST/>" {
		t.Errorf("body %q, head (-want +got):\n%s", body, diff)
	}
}

func TestStatusesAreForwarded(t *testing.T) {
	for status, line := range map[int]string{204: "HTTP/1.1 204 No Content", 302: "HTTP/1.1 302 Found", 304: "HTTP/1.1 304 Not Modified",
		429: "HTTP/1.1 429 Too Many Requests", 500: "HTTP/1.1 500 Internal Server Error", 599: "HTTP/1.1 599 Unknown Status Code"} {
		got, body := responseTo(t, NewPolicy(PolicyOptions{}), status, "", someDate, "Location: /a")
		if got[0] != line || body != "" {
			t.Errorf("status %d: %q, body %q", status, got, body)
		}
		if last := got[len(got)-1]; last != "Location: /a" {
			t.Errorf("status %d ends with %q", status, last)
		}
	}
}

// A name with underscores is another name. Once, it became the real field and replaced it.
func TestResponseFieldsWithUnderscoresKeepTheirNames(t *testing.T) {
	lines := []string{"Content-Type: application/json", "Content_Type: text/html", "Content_Encoding: gzip"}
	got, _ := responseTo(t, NewPolicy(PolicyOptions{}), 200, "{}", append([]string{someDate}, lines...)...)
	want := []string{"HTTP/1.1 200 OK", lines[0], "Content-Length: 2", someDate, lines[1], lines[2]}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("head (-want +got):\n%s", diff)
	}
}

// Two lines of a list are one list. A client that lacks the first coding cannot decode the body.
func TestContentCodingsOnSeveralLinesAreOneList(t *testing.T) {
	got, _ := responseTo(t, NewPolicy(PolicyOptions{}), 200, "", someDate, "Content-Encoding: gzip", "content-encoding: br", "Content-Encoding: zstd")
	if diff := cmp.Diff([]string{"HTTP/1.1 200 OK", "Content-Encoding: gzip, br, zstd", "Content-Length: 0", someDate}, got); diff != "" {
		t.Errorf("head (-want +got):\n%s", diff)
	}
}

func TestTheFirstDateOfTwoIsKept(t *testing.T) {
	got, _ := responseTo(t, NewPolicy(PolicyOptions{}), 200, "", "date: Mon, 01 Jan 2001 00:00:00 GMT", "Date: Tue, 02 Jan 2001 00:00:00 GMT", "D~te: x")
	if diff := cmp.Diff([]string{"HTTP/1.1 200 OK", "Content-Length: 0", someDate, "D~te: x"}, got); diff != "" {
		t.Errorf("head (-want +got):\n%s", diff)
	}
}

func TestTooManyConnectionOptionsCloseTheGate(t *testing.T) {
	var lines []string
	for range maxOptions {
		lines = append(lines, "Connection: keep-alive, Close, te, X-A")
	}
	got, _ := responseTo(t, NewPolicy(PolicyOptions{}), 200, "", append(lines, someDate, "X-A: 0", "X-B: 1")...)
	if diff := cmp.Diff([]string{"HTTP/1.1 200 OK", "Content-Length: 0", someDate, "X-B: 1"}, got); diff != "" {
		t.Errorf("head (-want +got):\n%s", diff)
	}
	got, _ = responseTo(t, NewPolicy(PolicyOptions{}), 200, "", append(lines, "X-B: 1", "Connection: X-C")...)
	if len(got) != 3 || !strings.HasPrefix(got[2], "Date: ") {
		t.Errorf("head is %q", got)
	}
}

func TestAServerWithDefaultsSendsOneDateAndKeepsSpelling(t *testing.T) {
	addr := serve(t, &fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) {
		NewPolicy(PolicyOptions{}).CopyResponse(&ctx.Response.Header, 200, []byte("date: Mon, 01 Jan 2001 00:00:00 GMT\r\nx-SPELL: 1\r\n"))
	}})
	response := exchange(t, addr, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	if n := strings.Count(strings.ToLower(response), "\r\ndate: "); n != 1 {
		t.Errorf("%d Dates in %q", n, response)
	}
	if !strings.Contains(response, "\r\nx-SPELL: 1\r\n") {
		t.Errorf("x-SPELL is not in %q", response)
	}
}

func TestAddDateIsNow(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		for range 3 {
			var h fasthttp.ResponseHeader
			AddDate(&h)
			if got, want := string(h.Peek("Date")), time.Now().UTC().Format(http.TimeFormat); got != want {
				t.Errorf("Date is %q, now is %q", got, want)
			}
			time.Sleep(700 * time.Millisecond)
		}
	})
}

// The memory of a response's header is kept for the next response. Once, it grew with the number of
// fields, and with the largest field so far at each position.
func TestMemoryOfAResponseHeaderFollowsItsBytes(t *testing.T) {
	const size = 16 << 10
	p := NewPolicy(PolicyOptions{Pass: []string{"Set-Cookie"}})
	for name, lines := range map[string]func(i int) string{
		"tiny fields": func(int) string { return strings.Repeat("a:\r\n", size/4) },
		"a large field that moves": func(i int) string {
			return strings.Repeat("a:\r\n", i) + "b:" + strings.Repeat("x", size-1024) + "\r\n"
		},
		"cookies, one large, it moves": func(i int) string {
			return strings.Repeat("set-cookie:a\r\n", i) + "set-cookie:" + strings.Repeat("x", size-1024) + "\r\n"
		},
	} {
		var h fasthttp.ResponseHeader
		kept := keptBy(func() {
			for i := range 256 {
				h.Reset()
				p.CopyResponse(&h, 200, []byte(lines(i)))
			}
		})
		if kept > 6*size {
			t.Errorf("%s: %d bytes are kept after headers of %d", name, kept, size)
		}
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

func TestCopyResponseStopsAtALineThatIsNone(t *testing.T) {
	for _, lines := range []string{"X-A: 1\r\nnonsense\r\nX-B: 2\r\n", "X-A: 1\r\nX-B", "X-A: 1\r\n: 2\r\n", "X-A: 1\r\nConnection"} {
		var h fasthttp.ResponseHeader
		NewPolicy(PolicyOptions{}).CopyResponse(&h, 200, []byte(lines))
		if string(h.Peek("X-A")) != "1" || h.Peek("X-B") != nil {
			t.Errorf("%q becomes %q", lines, h.String())
		}
	}
}

// fasthttp joins folded lines, treats LF like CRLF, and allows blanks in names. RawHeaders must
// still return the original bytes, or Scan could not detect these errors.
func TestScanSeesWhatFasthttpAccepts(t *testing.T) {
	addr := serve(t, &fasthttp.Server{
		DisableHeaderNamesNormalizing: true,
		Handler: func(ctx *fasthttp.RequestCtx) {
			f := RequestFields{HTTP10: !ctx.Request.Header.IsHTTP11()}
			ctx.SetStatusCode(204)
			if err := f.Scan(ctx.Request.Header.RawHeaders()); err != nil {
				ctx.Error(err.Error(), 400)
			}
			ctx.SetConnectionClose()
		},
	})
	for raw, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: a\r\nfoo-BAR: 1\r\n\r\n":                                                "204",
		"GET / HTTP/1.0\r\n\r\n":                                                                         "204",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n":                      "204",
		"GET / HTTP/1.1\r\nHost: a\r\nFoo Bar: 1\r\n\r\n":                                                "blank in or after the name",
		"GET / HTTP/1.1\r\nHost: a\nX-A: 1\r\n\r\n":                                                      "LF without CR",
		"GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\n\r\n\r\n":                                                  "LF without CR",
		"GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\n  2\r\n\r\n":                                             "obs-fold",
		"GET / HTTP/1.1\r\nHost: a\r\nX-B: 0\r\nX-A: 1\r\n\t2\r\n 3\r\nX-C: 4\r\n\r\n":                   "obs-fold",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n":                  "obs-fold",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: identity\r\n\r\nabc":      "only chunked",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n":                              "only chunked",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": "Content-Length and Transfer-Encoding together",
	} {
		if response := exchange(t, addr, raw); !strings.Contains(response, want) {
			t.Errorf("%q gets %q, want %q", raw, response, want)
		}
	}
}

func TestTrailersCrossWithoutFieldsThatCopyResponseDrops(t *testing.T) {
	p := NewPolicy(PolicyOptions{Pass: []string{"Set-Cookie"}, RequestID: "X-Request-Id"})
	lines := "Grpc-Status: 0\r\nX-Request-Id: a\r\nX_Request_Id: c\r\nx-request-id: b\r\nSet-Cookie: a\r\nContent-Type: a\r\n" +
		"Connection: a\r\nX-Forwarded-For: a\r\nX-Adbuffer-Source: a\r\nX-Other: 1\r\n"
	if got, want := string(p.AppendTrailers(nil, []byte(lines))), "Grpc-Status: 0\r\nX-Other: 1\r\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
